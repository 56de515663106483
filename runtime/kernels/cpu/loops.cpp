#include "runtime/kernels/cpu/loops.h"

#include "runtime/kernels/cpu/vector_math.h"

namespace rondo::cpu {
namespace {

// Sums keep this many partial sums, added in one fixed order.
constexpr int kLanes = 16;

inline double join(const double* lanes) {
  double sum = 0.0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

}  // namespace

RONDO_CLONES void relu_forward(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = Relu().forward(x[i]);
}
RONDO_CLONES void sigmoid_forward(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = vector_sigmoid(x[i]);
}
RONDO_CLONES void tanh_forward(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = vector_tanh(x[i]);
}
RONDO_CLONES void relu_backward(const float* dy, const float* y, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = Relu().backward(dy[i], y[i]);
}
RONDO_CLONES void sigmoid_backward(const float* dy, const float* y, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = Sigmoid().backward(dy[i], y[i]);
}
RONDO_CLONES void tanh_backward(const float* dy, const float* y, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = Tanh().backward(dy[i], y[i]);
}

RONDO_CLONES void add_floats(const float* a, const float* b, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}
RONDO_CLONES void apply_mask(const float* x, const uint8_t* mask, float scale, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float kept = x[i] * scale;
    y[i] = mask[i] != 0 ? kept : 0.0f;
  }
}

RONDO_CLONES float max_float(const float* x, int64_t count) {
  float lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = -HUGE_VALF;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (; i < count; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  for (int l = 1; l < kLanes; ++l) lanes[0] = lanes[l] > lanes[0] ? lanes[l] : lanes[0];
  return lanes[0];
}
RONDO_CLONES double exp_shifted(const float* x, float shift, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = vector_exp(x[i] - shift);
  return sum_floats(y, count);
}
RONDO_CLONES void scale_floats(const float* x, float scale, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * scale;
}
RONDO_CLONES double sum_floats(const float* x, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += static_cast<double>(x[i + l]);
  }
  for (; i < count; ++i) lanes[0] += static_cast<double>(x[i]);
  return join(lanes);
}
RONDO_CLONES double dot_floats(const float* x, const float* y, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(y[i + l]);
    }
  }
  for (; i < count; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return join(lanes);
}
RONDO_CLONES void softmax_backward_row(const float* y, const float* dy, float dot, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = y[i] * (dy[i] - dot);
}

}  // namespace rondo::cpu
