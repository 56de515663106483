#include "runtime/kernels/cuda/depthwise.h"

#include "runtime/kernels/cuda/launch.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Divides an index by an extent in 32 bits where all indices fit, which is several times faster.
struct Divider {
  int64_t by;
  bool narrow;
  RONDO_DEVICE int64_t quotient(int64_t i) const {
    return narrow ? static_cast<int64_t>(static_cast<uint32_t>(i) / static_cast<uint32_t>(by)) : i / by;
  }
};

struct Forward {
  Depthwise d;
  bool narrow;
  const float *x, *w;
  float* y;
  RONDO_DEVICE void operator()(int64_t i) const {
    const WindowGeometry& g = d.window;
    const int64_t filters = g.channels * d.multiplier;
    const int64_t pixel = Divider{filters, narrow}.quotient(i), f = i - pixel * filters;
    const int64_t line = Divider{g.out_width, narrow}.quotient(pixel), column = pixel - line * g.out_width;
    const int64_t n = Divider{g.out_height, narrow}.quotient(line), row = line - n * g.out_height;
    const int64_t c = Divider{d.multiplier, narrow}.quotient(f);
    float sum = 0.0f;
    for (int64_t r = 0; r < g.window_height; ++r) {
      const int64_t h = row * g.stride_height - g.top + r * g.dilation_height;
      if (h < 0 || h >= g.height) continue;
      for (int64_t q = 0; q < g.window_width; ++q) {
        const int64_t at = column * g.stride_width - g.left + q * g.dilation_width;
        if (at < 0 || at >= g.width) continue;
        sum += x[((n * g.height + h) * g.width + at) * g.channels + c] *
               w[(r * g.window_width + q) * filters + f];
      }
    }
    y[i] = sum;
  }
};

struct Input {
  Depthwise d;
  bool narrow;
  const float *dy, *w;
  float* dx;
  RONDO_DEVICE void operator()(int64_t i) const {
    const WindowGeometry& g = d.window;
    const int64_t filters = g.channels * d.multiplier;
    const int64_t pixel = Divider{g.channels, narrow}.quotient(i), c = i - pixel * g.channels;
    const int64_t line = Divider{g.width, narrow}.quotient(pixel), column = pixel - line * g.width;
    const int64_t n = Divider{g.height, narrow}.quotient(line), row = line - n * g.height;
    float sum = 0.0f;
    for (int64_t r = 0; r < g.window_height; ++r) {
      const int64_t h = row + g.top - r * g.dilation_height;  // of the window, times the stride
      if (h < 0 || h % g.stride_height != 0 || h / g.stride_height >= g.out_height) continue;
      for (int64_t q = 0; q < g.window_width; ++q) {
        const int64_t at = column + g.left - q * g.dilation_width;
        if (at < 0 || at % g.stride_width != 0 || at / g.stride_width >= g.out_width) continue;
        const int64_t out =
            ((n * g.out_height + h / g.stride_height) * g.out_width + at / g.stride_width) * filters;
        const int64_t tap = (r * g.window_width + q) * filters;
        for (int64_t f = c * d.multiplier; f < (c + 1) * d.multiplier; ++f) sum += dy[out + f] * w[tap + f];
      }
    }
    dx[i] = sum;
  }
};

// One thread for each part of the output's lines and each filter, with the sums of all taps of a small window
// in registers; one for each tap as well where the window is larger (kTaps == 1).
template <int kTaps>
struct WeightParts {
  Depthwise d;
  int64_t lines;  // of a part
  const float *x, *dy;
  double* parts;
  RONDO_DEVICE void operator()(int64_t i) const {
    const WindowGeometry& g = d.window;
    const int64_t filters = g.channels * d.multiplier, taps = g.window_height * g.window_width;
    const int64_t f = i % filters, c = f / d.multiplier;
    const int64_t first = kTaps == 1 ? i / filters % taps : 0;
    const int64_t part = kTaps == 1 ? i / filters / taps : i / filters;
    const int64_t begin = part * lines, all = g.batch * g.out_height;
    const int64_t end = begin + lines < all ? begin + lines : all;
    double sums[kTaps] = {};
    for (int64_t line = begin; line < end; ++line) {
      const int64_t n = line / g.out_height, row = line - n * g.out_height;
      float near[kTaps] = {};
      for (int64_t column = 0; column < g.out_width; ++column) {
        const float slope = dy[(line * g.out_width + column) * filters + f];
#ifdef __CUDACC__
#pragma unroll
#endif
        for (int t = 0; t < kTaps; ++t) {
          const int64_t tap = first + t, r = tap / g.window_width, q = tap - r * g.window_width;
          const int64_t h = row * g.stride_height - g.top + r * g.dilation_height;
          const int64_t at = column * g.stride_width - g.left + q * g.dilation_width;
          if (h < 0 || h >= g.height || at < 0 || at >= g.width) continue;
          near[t] += slope * x[((n * g.height + h) * g.width + at) * g.channels + c];
        }
      }
      for (int t = 0; t < kTaps; ++t) sums[t] += static_cast<double>(near[t]);
    }
    for (int t = 0; t < kTaps; ++t) parts[(part * taps + first + t) * filters + f] = sums[t];
  }
};

struct SumParts {
  const double* parts;
  int64_t count, weights;
  float* dw;
  RONDO_DEVICE void operator()(int64_t i) const {
    double sum = 0.0;
    for (int64_t part = 0; part < count; ++part) sum += parts[part * weights + i];
    dw[i] = static_cast<float>(sum);
  }
};

int64_t input_bytes(const WindowGeometry& g) {
  return g.batch * g.height * g.width * g.channels * kFloat;
}
int64_t output_elements(const Depthwise& d) {
  return d.window.batch * d.window.out_height * d.window.out_width * d.window.channels * d.multiplier;
}
int64_t weight_count(const Depthwise& d) {
  return d.window.window_height * d.window.window_width * d.window.channels * d.multiplier;
}

}  // namespace

void depthwise_forward(cudaStream_t stream, const Depthwise& d, const float* x, const float* w, float* y) {
  const int64_t count = output_elements(d);
  launch_elements(
      "depthwise convolution", stream, count,
      {reads(x, input_bytes(d.window)), reads(w, weight_count(d) * kFloat), writes(y, count * kFloat)},
      Forward{d, count < int64_t{1} << 32, x, w, y});
}

void depthwise_input(cudaStream_t stream, const Depthwise& d, const float* dy, const float* w, float* dx) {
  const int64_t bytes = input_bytes(d.window);
  launch_elements(
      "depthwise input gradient", stream, bytes / kFloat,
      {reads(dy, output_elements(d) * kFloat), reads(w, weight_count(d) * kFloat), writes(dx, bytes)},
      Input{d, bytes / kFloat < int64_t{1} << 32, dy, w, dx});
}

int64_t depthwise_parts(const Depthwise& d) {
  constexpr int64_t kThreads = 1 << 18;  // that a large GPU keeps busy
  const int64_t wanted = kThreads / (d.window.channels * d.multiplier) + 1;
  const int64_t lines = d.window.batch * d.window.out_height;
  const int64_t each = (lines + wanted - 1) / wanted;
  return (lines + each - 1) / each;
}

void depthwise_weights(cudaStream_t stream, const Depthwise& d, const float* x, const float* dy,
                       double* parts, float* dw) {
  const WindowGeometry& g = d.window;
  const int64_t weights = weight_count(d), count = depthwise_parts(d), all = g.batch * g.out_height;
  const int64_t lines = (all + count - 1) / count;
  const int64_t bytes = count * weights * static_cast<int64_t>(sizeof(double));
  const auto launch = [&](auto kernel, int64_t threads) {
    launch_elements("depthwise weight gradient", stream, threads,
                    {reads(x, input_bytes(g)), reads(dy, output_elements(d) * kFloat), writes(parts, bytes)},
                    kernel);
  };
  if (g.window_height == 3 && g.window_width == 3) {
    launch(WeightParts<9>{d, lines, x, dy, parts}, count * g.channels * d.multiplier);
  } else {
    launch(WeightParts<1>{d, lines, x, dy, parts}, count * weights);
  }
  launch_elements("sum of weight gradients", stream, weights,
                  {reads(parts, bytes), writes(dw, weights * kFloat)}, SumParts{parts, count, weights, dw});
}

}  // namespace rondo::cuda
