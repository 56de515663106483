#include "runtime/kernels/cpu/binary_loops.h"

#include <cmath>

#include "runtime/kernels/arrange.h"
#include "runtime/kernels/cpu/loops.h"

namespace rondo::cpu {
namespace {

constexpr int kLanes = 16;

RONDO_CLONES void sum_forward(float a, float b, const float* x, const float* y, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = a * x[i] + b * y[i];
}
RONDO_CLONES void multiply_forward(const float* x, const float* y, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * y[i];
}
RONDO_CLONES void maximum_forward(const float* x, const float* y, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] >= y[i] || x[i] != x[i] ? x[i] : y[i];
}
RONDO_CLONES void minimum_forward(const float* x, const float* y, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] <= y[i] || x[i] != x[i] ? x[i] : y[i];
}
// grad_x may be grad_out: it is written last.
RONDO_CLONES void sum_backward(float a, float b, const float* dout, float* dx, float* dy, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = dout[i];
    dy[i] = b * g;
    dx[i] = a * g;
  }
}
RONDO_CLONES void multiply_backward(const float* x, const float* y, const float* dout, float* dx, float* dy,
                                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = dout[i];
    dy[i] = g * x[i];
    dx[i] = g * y[i];
  }
}
RONDO_CLONES void maximum_backward(const float* x, const float* y, const float* dout, float* dx, float* dy,
                                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = dout[i];
    const bool first = x[i] >= y[i];
    dy[i] = first ? 0.0f : g;
    dx[i] = first ? g : 0.0f;
  }
}

RONDO_CLONES void minimum_backward(const float* x, const float* y, const float* dout, float* dx, float* dy,
                                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = dout[i];
    const bool first = x[i] <= y[i];
    dy[i] = first ? 0.0f : g;
    dx[i] = first ? g : 0.0f;
  }
}

RONDO_CLONES void sums_of(const float* w, int64_t count, double* absolute, double* square) {
  double sums[2][kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const auto v = static_cast<double>(w[i + l]);
      sums[0][l] += std::fabs(v);
      sums[1][l] += v * v;
    }
  }
  for (; i < count; ++i) {
    const auto v = static_cast<double>(w[i]);
    sums[0][0] += std::fabs(v);
    sums[1][0] += v * v;
  }
  for (int l = 0; l < kLanes; ++l) {
    *absolute += sums[0][l];
    *square += sums[1][l];
  }
}

}  // namespace

void binary_forward(Binary function, float a, float b, const float* x, const float* y, float* out,
                    int64_t count) {
  switch (function) {
    case Binary::kWeightedSum:
      return sum_forward(a, b, x, y, out, count);
    case Binary::kMultiply:
      return multiply_forward(x, y, out, count);
    case Binary::kMaximum:
      return maximum_forward(x, y, out, count);
    case Binary::kMinimum:
      return minimum_forward(x, y, out, count);
  }
}

void binary_backward(Binary function, float a, float b, const float* x, const float* y, const float* dout,
                     float* dx, float* dy, int64_t count) {
  switch (function) {
    case Binary::kWeightedSum:
      return sum_backward(a, b, dout, dx, dy, count);
    case Binary::kMultiply:
      return multiply_backward(x, y, dout, dx, dy, count);
    case Binary::kMaximum:
      return maximum_backward(x, y, dout, dx, dy, count);
    case Binary::kMinimum:
      return minimum_backward(x, y, dout, dx, dy, count);
  }
}

double penalty(double l1, double l2, const float* w, int64_t count) {
  double absolute = 0.0, square = 0.0;
  sums_of(w, count, &absolute, &square);
  return l1 * absolute + l2 * square;
}

RONDO_CLONES void add_penalty_gradient(float l1, float l2, const float* w, float* grad, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float sign = w[i] > 0.0f ? 1.0f : (w[i] < 0.0f ? -1.0f : 0.0f);
    grad[i] += l1 * sign + 2.0f * l2 * w[i];
  }
}

}  // namespace rondo::cpu
