// Pooling, padding, and convolution in groups on (batch, height, width, channels). Backward passes gather:
// each element of the result is written by one thread that looks for what flows into it, so no sum depends on
// timing.
#include "runtime/kernels/cuda/element_math.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

struct Position {
  int64_t n, h, w, c;
};
RONDO_DEVICE inline Position position_of(int64_t i, int64_t height, int64_t width, int64_t channels) {
  Position p;
  const int64_t pixel = i / channels;
  p.c = i - pixel * channels;
  const int64_t line = pixel / width;
  p.w = pixel - line * width;
  p.n = line / height;
  p.h = line - p.n * height;
  return p;
}

// The part [begin, end) of a window's cells that lies inside of the image, where the window starts at
// `start`.
struct Cells {
  int64_t begin, end;
};
RONDO_DEVICE inline Cells inside(int64_t start, int64_t window, int64_t extent) {
  return {start < 0 ? -start : 0, start + window > extent ? extent - start : window};
}

// The windows [begin, end) along an axis that cover a cell.
RONDO_DEVICE inline Cells covering(int64_t cell, int64_t padding, int64_t window, int64_t stride,
                                   int64_t windows) {
  const int64_t at = cell + padding;
  const int64_t first = at < window ? 0 : (at - window) / stride + 1;
  const int64_t last = at / stride;
  return {first, last + 1 < windows ? last + 1 : windows};
}

template <class T>
struct MaxForward {
  WindowGeometry g;
  const T* x;
  T* y;
  uint16_t* where;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, g.out_height, g.out_width, g.channels);
    const int64_t top = p.h * g.stride_height - g.top, left = p.w * g.stride_width - g.left;
    const Cells rows = inside(top, g.window_height, g.height),
                columns = inside(left, g.window_width, g.width);
    float most = -HUGE_VALF;
    int64_t at = rows.begin * g.window_width + columns.begin;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        const float v = as_float(x[((p.n * g.height + top + r) * g.width + left + q) * g.channels + p.c]);
        if (!(v > most) && v == v) continue;  // a NaN is taken
        most = v;
        at = r * g.window_width + q;
      }
    }
    y[i] = rounded<T>(most);
    if (where != nullptr) where[i] = static_cast<uint16_t>(at);
  }
};

template <class T>
struct MaxBackward {
  WindowGeometry g;
  const T* dy;
  const uint16_t* where;
  T* dx;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, g.height, g.width, g.channels);
    const Cells rows = covering(p.h, g.top, g.window_height, g.stride_height, g.out_height);
    const Cells columns = covering(p.w, g.left, g.window_width, g.stride_width, g.out_width);
    float sum = 0.0f;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        const int64_t out = ((p.n * g.out_height + r) * g.out_width + q) * g.channels + p.c;
        const int64_t cell =
            (p.h + g.top - r * g.stride_height) * g.window_width + p.w + g.left - q * g.stride_width;
        if (where[out] == cell) sum += as_float(dy[out]);
      }
    }
    dx[i] = rounded<T>(sum);
  }
};

template <class T>
struct AverageForward {
  WindowGeometry g;
  const T* x;
  T* y;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, g.out_height, g.out_width, g.channels);
    const int64_t top = p.h * g.stride_height - g.top, left = p.w * g.stride_width - g.left;
    const Cells rows = inside(top, g.window_height, g.height),
                columns = inside(left, g.window_width, g.width);
    float sum = 0.0f;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        sum += as_float(x[((p.n * g.height + top + r) * g.width + left + q) * g.channels + p.c]);
      }
    }
    const auto cells = static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
    y[i] = rounded<T>(sum / cells);
  }
};

template <class T>
struct AverageBackward {
  WindowGeometry g;
  const T* dy;
  T* dx;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, g.height, g.width, g.channels);
    const Cells rows = covering(p.h, g.top, g.window_height, g.stride_height, g.out_height);
    const Cells columns = covering(p.w, g.left, g.window_width, g.stride_width, g.out_width);
    float sum = 0.0f;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const Cells real_rows = inside(r * g.stride_height - g.top, g.window_height, g.height);
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        const Cells real = inside(q * g.stride_width - g.left, g.window_width, g.width);
        const auto cells = static_cast<float>((real_rows.end - real_rows.begin) * (real.end - real.begin));
        sum += as_float(dy[((p.n * g.out_height + r) * g.out_width + q) * g.channels + p.c]) / cells;
      }
    }
    dx[i] = rounded<T>(sum);
  }
};

template <class T>
struct Pad {
  Padding a;
  const T* x;
  T* padded;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, a.height + a.top + a.bottom, a.width + a.left + a.right, a.channels);
    const int64_t h = p.h - a.top, w = p.w - a.left;
    const bool real = h >= 0 && h < a.height && w >= 0 && w < a.width;
    padded[i] = real ? x[((p.n * a.height + h) * a.width + w) * a.channels + p.c] : rounded<T>(0.0f);
  }
};

template <class T>
struct Crop {
  Padding a;
  const T* padded;
  T* x;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, a.height, a.width, a.channels);
    const int64_t height = a.height + a.top + a.bottom, width = a.width + a.left + a.right;
    x[i] = padded[((p.n * height + p.h + a.top) * width + p.w + a.left) * a.channels + p.c];
  }
};

// ---- convolution in groups. f: filter, k: channel within the group.

template <class T>
struct ConvForward {
  GroupedConv g;
  const T *x, *w;
  T* y;
  RONDO_DEVICE void operator()(int64_t i) const {
    const WindowGeometry& v = g.window;
    const Position p = position_of(i, v.out_height, v.out_width, g.filters);
    const int64_t each = v.channels / g.groups, first = p.c / (g.filters / g.groups) * each;
    float sum = 0.0f;
    for (int64_t r = 0; r < v.window_height; ++r) {
      const int64_t h = p.h * v.stride_height - v.top + r * v.dilation_height;
      if (h < 0 || h >= v.height) continue;
      for (int64_t q = 0; q < v.window_width; ++q) {
        const int64_t column = p.w * v.stride_width - v.left + q * v.dilation_width;
        if (column < 0 || column >= v.width) continue;
        const T* pixel = x + ((p.n * v.height + h) * v.width + column) * v.channels + first;
        const T* weights = w + ((p.c * v.window_height + r) * v.window_width + q) * each;
        for (int64_t k = 0; k < each; ++k) sum += as_float(pixel[k]) * as_float(weights[k]);
      }
    }
    y[i] = rounded<T>(sum);
  }
};

template <class T>
struct ConvInput {
  GroupedConv g;
  const T *dy, *w;
  T* dx;
  RONDO_DEVICE void operator()(int64_t i) const {
    const WindowGeometry& v = g.window;
    const Position p = position_of(i, v.height, v.width, v.channels);
    const int64_t each = v.channels / g.groups, filters = g.filters / g.groups;
    const int64_t group = p.c / each, k = p.c - group * each;
    float sum = 0.0f;
    for (int64_t r = 0; r < v.window_height; ++r) {
      const int64_t h = p.h + v.top - r * v.dilation_height;  // of the window, times the stride
      if (h < 0 || h % v.stride_height != 0 || h / v.stride_height >= v.out_height) continue;
      for (int64_t q = 0; q < v.window_width; ++q) {
        const int64_t c = p.w + v.left - q * v.dilation_width;
        if (c < 0 || c % v.stride_width != 0 || c / v.stride_width >= v.out_width) continue;
        const T* pixel =
            dy + ((p.n * v.out_height + h / v.stride_height) * v.out_width + c / v.stride_width) * g.filters +
            group * filters;
        const T* weights = w + ((group * filters * v.window_height + r) * v.window_width + q) * each + k;
        const int64_t next = v.window_height * v.window_width * each;
        for (int64_t f = 0; f < filters; ++f) sum += as_float(pixel[f]) * as_float(weights[f * next]);
      }
    }
    dx[i] = rounded<T>(sum);
  }
};

// Task: a part of the output pixels for one weight, numbered (part, row, column, k, filter): neighbouring
// threads read neighbouring filters.
template <class T>
struct ConvWeightParts {
  GroupedConv g;
  const T *x, *dy;
  int64_t pixels, each_part;
  double* parts;
  RONDO_DEVICE void operator()(int64_t i) const {
    const WindowGeometry& v = g.window;
    const int64_t each = v.channels / g.groups;
    int64_t rest = i / g.filters;
    const int64_t f = i - rest * g.filters;
    const int64_t k = rest % each;
    rest /= each;
    const int64_t q = rest % v.window_width;
    rest /= v.window_width;
    const int64_t r = rest % v.window_height, part = rest / v.window_height;
    const int64_t channel = f / (g.filters / g.groups) * each + k;
    const int64_t begin = part * each_part, end = begin + each_part < pixels ? begin + each_part : pixels;
    double sum = 0.0;
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const Position p = position_of(pixel, v.out_height, v.out_width, 1);
      const int64_t h = p.h * v.stride_height - v.top + r * v.dilation_height;
      const int64_t c = p.w * v.stride_width - v.left + q * v.dilation_width;
      if (h < 0 || h >= v.height || c < 0 || c >= v.width) continue;
      sum += static_cast<double>(as_float(x[((p.n * v.height + h) * v.width + c) * v.channels + channel])) *
             static_cast<double>(as_float(dy[pixel * g.filters + f]));
    }
    parts[i] = sum;
  }
};

// Adds the parts of each weight, and puts it where it belongs.
struct ConvWeights {
  GroupedConv g;
  const double* parts;
  int64_t count;  // of parts
  float* dw;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t taps = g.window.window_height * g.window.window_width * (g.window.channels / g.groups);
    const int64_t tap = i / g.filters, f = i - tap * g.filters;
    double sum = 0.0;
    for (int64_t p = 0; p < count; ++p) sum += parts[p * taps * g.filters + i];
    dw[f * taps + tap] = static_cast<float>(sum);
  }
};

int64_t pixels_of(const WindowGeometry& g) {
  return g.batch * g.height * g.width * g.channels;
}
int64_t outputs(const WindowGeometry& g, int64_t channels) {
  return g.batch * g.out_height * g.out_width * channels;
}
int64_t weights_of(const GroupedConv& g) {
  return g.filters * g.window.window_height * g.window.window_width * (g.window.channels / g.groups);
}

}  // namespace

template <class T>
void max_pool_forward(cudaStream_t stream, const WindowGeometry& g, const T* x, T* y, uint16_t* where) {
  const int64_t count = outputs(g, g.channels);
  launch_elements("maximum pooling", stream, count,
                  {reads(x, pixels_of(g) * kBytesOf<T>), writes(y, count * kBytesOf<T>),
                   writes(where, where != nullptr ? count * 2 : 0)},
                  MaxForward<T>{g, x, y, where});
}

template <class T>
void max_pool_backward(cudaStream_t stream, const WindowGeometry& g, const T* dy, const uint16_t* where,
                       T* dx) {
  const int64_t count = outputs(g, g.channels);
  launch_elements(
      "maximum pooling gradient", stream, pixels_of(g),
      {reads(dy, count * kBytesOf<T>), reads(where, count * 2), writes(dx, pixels_of(g) * kBytesOf<T>)},
      MaxBackward<T>{g, dy, where, dx});
}

template <class T>
void average_pool_forward(cudaStream_t stream, const WindowGeometry& g, const T* x, T* y) {
  const int64_t count = outputs(g, g.channels);
  launch_elements("average pooling", stream, count,
                  {reads(x, pixels_of(g) * kBytesOf<T>), writes(y, count * kBytesOf<T>)},
                  AverageForward<T>{g, x, y});
}

template <class T>
void average_pool_backward(cudaStream_t stream, const WindowGeometry& g, const T* dy, T* dx) {
  launch_elements("average pooling gradient", stream, pixels_of(g),
                  {reads(dy, outputs(g, g.channels) * kBytesOf<T>), writes(dx, pixels_of(g) * kBytesOf<T>)},
                  AverageBackward<T>{g, dy, dx});
}

namespace {
int64_t padded_count(const Padding& a) {
  return a.batch * (a.height + a.top + a.bottom) * (a.width + a.left + a.right) * a.channels;
}
int64_t bare_count(const Padding& a) {
  return a.batch * a.height * a.width * a.channels;
}
}  // namespace

template <class T>
void pad_image(cudaStream_t stream, const Padding& a, const T* x, T* padded) {
  launch_elements("padding", stream, padded_count(a),
                  {reads(x, bare_count(a) * kBytesOf<T>), writes(padded, padded_count(a) * kBytesOf<T>)},
                  Pad<T>{a, x, padded});
}

template <class T>
void crop_image(cudaStream_t stream, const Padding& a, const T* padded, T* x) {
  launch_elements("cropping", stream, bare_count(a),
                  {reads(padded, padded_count(a) * kBytesOf<T>), writes(x, bare_count(a) * kBytesOf<T>)},
                  Crop<T>{a, padded, x});
}

template <class T>
void grouped_conv_forward(cudaStream_t stream, const GroupedConv& g, const T* x, const T* w, T* y) {
  const int64_t count = outputs(g.window, g.filters);
  launch_elements("convolution in groups", stream, count,
                  {reads(x, pixels_of(g.window) * kBytesOf<T>), reads(w, weights_of(g) * kBytesOf<T>),
                   writes(y, count * kBytesOf<T>)},
                  ConvForward<T>{g, x, w, y});
}

template <class T>
void grouped_conv_input(cudaStream_t stream, const GroupedConv& g, const T* dy, const T* w, T* dx) {
  launch_elements("convolution in groups, input gradient", stream, pixels_of(g.window),
                  {reads(dy, outputs(g.window, g.filters) * kBytesOf<T>),
                   reads(w, weights_of(g) * kBytesOf<T>), writes(dx, pixels_of(g.window) * kBytesOf<T>)},
                  ConvInput<T>{g, dy, w, dx});
}

int64_t grouped_conv_parts(const GroupedConv& g) {
  return column_parts(outputs(g.window, 1), weights_of(g));
}

template <class T>
void grouped_conv_weights(cudaStream_t stream, const GroupedConv& g, const T* x, const T* dy, double* parts,
                          float* dw) {
  const int64_t pixels = outputs(g.window, 1), count = grouped_conv_parts(g), weights = weights_of(g);
  const int64_t part_bytes = count * weights * static_cast<int64_t>(sizeof(double));
  launch_elements("convolution in groups, weight gradient", stream, count * weights,
                  {reads(x, pixels_of(g.window) * kBytesOf<T>), reads(dy, pixels * g.filters * kBytesOf<T>),
                   writes(parts, part_bytes)},
                  ConvWeightParts<T>{g, x, dy, pixels, (pixels + count - 1) / count, parts});
  launch_elements("convolution in groups, weight totals", stream, weights,
                  {reads(parts, part_bytes), writes(dw, weights * kFloat)}, ConvWeights{g, parts, count, dw});
}

#define INSTANTIATE(T)                                                                                 \
  template void max_pool_forward(cudaStream_t, const WindowGeometry&, const T*, T*, uint16_t*);        \
  template void max_pool_backward(cudaStream_t, const WindowGeometry&, const T*, const uint16_t*, T*); \
  template void average_pool_forward(cudaStream_t, const WindowGeometry&, const T*, T*);               \
  template void average_pool_backward(cudaStream_t, const WindowGeometry&, const T*, T*);              \
  template void pad_image(cudaStream_t, const Padding&, const T*, T*);                                 \
  template void crop_image(cudaStream_t, const Padding&, const T*, T*);                                \
  template void grouped_conv_forward(cudaStream_t, const GroupedConv&, const T*, const T*, T*);        \
  template void grouped_conv_input(cudaStream_t, const GroupedConv&, const T*, const T*, T*);          \
  template void grouped_conv_weights(cudaStream_t, const GroupedConv&, const T*, const T*, double*, float*);
RONDO_FOR_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace rondo::cuda
