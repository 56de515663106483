// Pooling, padding, and convolution in groups on (batch, height, width, channels). Backward passes gather:
// each element of the result is written by one thread that looks for what flows into it, so no sum depends on
// timing.
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

struct MaxForward {
  WindowGeometry g;
  const float* x;
  float* y;
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
        const float v = x[((p.n * g.height + top + r) * g.width + left + q) * g.channels + p.c];
        if (!(v > most) && v == v) continue;  // a NaN is taken
        most = v;
        at = r * g.window_width + q;
      }
    }
    y[i] = most;
    if (where != nullptr) where[i] = static_cast<uint16_t>(at);
  }
};

struct MaxBackward {
  WindowGeometry g;
  const float* dy;
  const uint16_t* where;
  float* dx;
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
        if (where[out] == cell) sum += dy[out];
      }
    }
    dx[i] = sum;
  }
};

struct AverageForward {
  WindowGeometry g;
  const float* x;
  float* y;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, g.out_height, g.out_width, g.channels);
    const int64_t top = p.h * g.stride_height - g.top, left = p.w * g.stride_width - g.left;
    const Cells rows = inside(top, g.window_height, g.height),
                columns = inside(left, g.window_width, g.width);
    float sum = 0.0f;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        sum += x[((p.n * g.height + top + r) * g.width + left + q) * g.channels + p.c];
      }
    }
    y[i] = sum / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
  }
};

struct AverageBackward {
  WindowGeometry g;
  const float* dy;
  float* dx;
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
        sum += dy[((p.n * g.out_height + r) * g.out_width + q) * g.channels + p.c] / cells;
      }
    }
    dx[i] = sum;
  }
};

struct Pad {
  Padding a;
  const float* x;
  float* padded;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, a.height + a.top + a.bottom, a.width + a.left + a.right, a.channels);
    const int64_t h = p.h - a.top, w = p.w - a.left;
    const bool real = h >= 0 && h < a.height && w >= 0 && w < a.width;
    padded[i] = real ? x[((p.n * a.height + h) * a.width + w) * a.channels + p.c] : 0.0f;
  }
};

struct Crop {
  Padding a;
  const float* padded;
  float* x;
  RONDO_DEVICE void operator()(int64_t i) const {
    const Position p = position_of(i, a.height, a.width, a.channels);
    const int64_t height = a.height + a.top + a.bottom, width = a.width + a.left + a.right;
    x[i] = padded[((p.n * height + p.h + a.top) * width + p.w + a.left) * a.channels + p.c];
  }
};

// ---- convolution in groups. f: filter, k: channel within the group.

struct ConvForward {
  GroupedConv g;
  const float *x, *w;
  float* y;
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
        const float* pixel = x + ((p.n * v.height + h) * v.width + column) * v.channels + first;
        const float* weights = w + ((p.c * v.window_height + r) * v.window_width + q) * each;
        for (int64_t k = 0; k < each; ++k) sum += pixel[k] * weights[k];
      }
    }
    y[i] = sum;
  }
};

struct ConvInput {
  GroupedConv g;
  const float *dy, *w;
  float* dx;
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
        const float* pixel =
            dy + ((p.n * v.out_height + h / v.stride_height) * v.out_width + c / v.stride_width) * g.filters +
            group * filters;
        const float* weights = w + ((group * filters * v.window_height + r) * v.window_width + q) * each + k;
        const int64_t next = v.window_height * v.window_width * each;
        for (int64_t f = 0; f < filters; ++f) sum += pixel[f] * weights[f * next];
      }
    }
    dx[i] = sum;
  }
};

// Task: a part of the output pixels for one weight, numbered (part, row, column, k, filter): neighbouring
// threads read neighbouring filters.
struct ConvWeightParts {
  GroupedConv g;
  const float *x, *dy;
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
      sum += static_cast<double>(x[((p.n * v.height + h) * v.width + c) * v.channels + channel]) *
             static_cast<double>(dy[pixel * g.filters + f]);
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

int64_t image_bytes(const WindowGeometry& g) {
  return g.batch * g.height * g.width * g.channels * kFloat;
}
int64_t outputs(const WindowGeometry& g, int64_t channels) {
  return g.batch * g.out_height * g.out_width * channels;
}
int64_t weights_of(const GroupedConv& g) {
  return g.filters * g.window.window_height * g.window.window_width * (g.window.channels / g.groups);
}

}  // namespace

void max_pool_forward(cudaStream_t stream, const WindowGeometry& g, const float* x, float* y,
                      uint16_t* where) {
  const int64_t count = outputs(g, g.channels);
  launch_elements(
      "maximum pooling", stream, count,
      {reads(x, image_bytes(g)), writes(y, count * kFloat), writes(where, where != nullptr ? count * 2 : 0)},
      MaxForward{g, x, y, where});
}

void max_pool_backward(cudaStream_t stream, const WindowGeometry& g, const float* dy, const uint16_t* where,
                       float* dx) {
  const int64_t count = outputs(g, g.channels);
  launch_elements("maximum pooling gradient", stream, image_bytes(g) / kFloat,
                  {reads(dy, count * kFloat), reads(where, count * 2), writes(dx, image_bytes(g))},
                  MaxBackward{g, dy, where, dx});
}

void average_pool_forward(cudaStream_t stream, const WindowGeometry& g, const float* x, float* y) {
  const int64_t count = outputs(g, g.channels);
  launch_elements("average pooling", stream, count, {reads(x, image_bytes(g)), writes(y, count * kFloat)},
                  AverageForward{g, x, y});
}

void average_pool_backward(cudaStream_t stream, const WindowGeometry& g, const float* dy, float* dx) {
  launch_elements("average pooling gradient", stream, image_bytes(g) / kFloat,
                  {reads(dy, outputs(g, g.channels) * kFloat), writes(dx, image_bytes(g))},
                  AverageBackward{g, dy, dx});
}

namespace {
int64_t padded_count(const Padding& a) {
  return a.batch * (a.height + a.top + a.bottom) * (a.width + a.left + a.right) * a.channels;
}
int64_t bare_count(const Padding& a) {
  return a.batch * a.height * a.width * a.channels;
}
}  // namespace

void pad_image(cudaStream_t stream, const Padding& a, const float* x, float* padded) {
  launch_elements("padding", stream, padded_count(a),
                  {reads(x, bare_count(a) * kFloat), writes(padded, padded_count(a) * kFloat)},
                  Pad{a, x, padded});
}

void crop_image(cudaStream_t stream, const Padding& a, const float* padded, float* x) {
  launch_elements("cropping", stream, bare_count(a),
                  {reads(padded, padded_count(a) * kFloat), writes(x, bare_count(a) * kFloat)},
                  Crop{a, padded, x});
}

void grouped_conv_forward(cudaStream_t stream, const GroupedConv& g, const float* x, const float* w,
                          float* y) {
  const int64_t count = outputs(g.window, g.filters);
  launch_elements(
      "convolution in groups", stream, count,
      {reads(x, image_bytes(g.window)), reads(w, weights_of(g) * kFloat), writes(y, count * kFloat)},
      ConvForward{g, x, w, y});
}

void grouped_conv_input(cudaStream_t stream, const GroupedConv& g, const float* dy, const float* w,
                        float* dx) {
  launch_elements("convolution in groups, input gradient", stream, image_bytes(g.window) / kFloat,
                  {reads(dy, outputs(g.window, g.filters) * kFloat), reads(w, weights_of(g) * kFloat),
                   writes(dx, image_bytes(g.window))},
                  ConvInput{g, dy, w, dx});
}

int64_t grouped_conv_parts(const GroupedConv& g) {
  return column_parts(outputs(g.window, 1), weights_of(g));
}

void grouped_conv_weights(cudaStream_t stream, const GroupedConv& g, const float* x, const float* dy,
                          double* parts, float* dw) {
  const int64_t pixels = outputs(g.window, 1), count = grouped_conv_parts(g), weights = weights_of(g);
  const int64_t part_bytes = count * weights * static_cast<int64_t>(sizeof(double));
  launch_elements(
      "convolution in groups, weight gradient", stream, count * weights,
      {reads(x, image_bytes(g.window)), reads(dy, pixels * g.filters * kFloat), writes(parts, part_bytes)},
      ConvWeightParts{g, x, dy, pixels, (pixels + count - 1) / count, parts});
  launch_elements("convolution in groups, weight totals", stream, weights,
                  {reads(parts, part_bytes), writes(dw, weights * kFloat)}, ConvWeights{g, parts, count, dw});
}

}  // namespace rondo::cuda
