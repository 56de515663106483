#include "runtime/kernels/cpu/sequence_loops.h"

#include <algorithm>

#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/vector_math.h"
#include "runtime/kernels/sequence.h"

namespace rondo::cpu {

RONDO_CLONES void accumulate(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

namespace {

constexpr int kLanes = 16;

RONDO_CLONES double squares_around(const float* x, float center, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const auto d = static_cast<double>(x[i + l] - center);
      lanes[l] += d * d;
    }
  }
  for (; i < count; ++i) {
    const auto d = static_cast<double>(x[i] - center);
    lanes[0] += d * d;
  }
  double sum = 0.0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

RONDO_CLONES void scale_row(const float* x, float mean, float scale, const float* gamma, const float* beta,
                            float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale;
  if (gamma != nullptr) {
    for (int64_t i = 0; i < count; ++i) y[i] *= gamma[i];
  }
  if (beta != nullptr) {
    for (int64_t i = 0; i < count; ++i) y[i] += beta[i];
  }
}

struct RowSums {
  double slope = 0.0, product = 0.0;  // sum of g, sum of g x_hat, with g = dy gamma
};

RONDO_CLONES void slope_sums(const float* x, const float* dy, float mean, float scale, const float* gamma,
                             RowSums* sums, int64_t count) {
  double slope = 0.0, product = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gamma != nullptr ? dy[i] * gamma[i] : dy[i];
    slope += static_cast<double>(g);
    product += static_cast<double>(g * ((x[i] - mean) * scale));
  }
  *sums = {slope, product};
}

RONDO_CLONES void gradient_row(const float* x, const float* dy, float mean, float scale, const float* gamma,
                               float mean_slope, float mean_product, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gamma != nullptr ? dy[i] * gamma[i] : dy[i];
    dx[i] = scale * (g - mean_slope - (x[i] - mean) * scale * mean_product);
  }
}

RONDO_CLONES void parameter_sums(const float* x, const float* dy, float mean, float scale, double* d_gamma,
                                 double* d_beta, int64_t count) {
  if (d_gamma != nullptr) {
    for (int64_t i = 0; i < count; ++i) d_gamma[i] += static_cast<double>(dy[i] * ((x[i] - mean) * scale));
  }
  if (d_beta != nullptr) {
    for (int64_t i = 0; i < count; ++i) d_beta[i] += static_cast<double>(dy[i]);
  }
}

}  // namespace

void layer_norm_row(const float* x, float epsilon, const float* gamma, const float* beta, float* y,
                    int64_t count, float* mean, float* scale) {
  const auto n = static_cast<double>(count);
  *mean = static_cast<float>(sum_floats(x, count) / n);
  const double variance = squares_around(x, *mean, count) / n;
  *scale = static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(epsilon)));
  scale_row(x, *mean, *scale, gamma, beta, y, count);
}

void layer_norm_gradient_row(const float* x, const float* dy, float mean, float scale, const float* gamma,
                             float* dx, double* d_gamma, double* d_beta, int64_t count) {
  RowSums sums;
  slope_sums(x, dy, mean, scale, gamma, &sums, count);
  parameter_sums(x, dy, mean, scale, d_gamma, d_beta, count);
  const auto n = static_cast<double>(count);
  gradient_row(x, dy, mean, scale, gamma, static_cast<float>(sums.slope / n),
               static_cast<float>(sums.product / n), dx, count);
}

namespace {

template <bool kHard>
[[gnu::always_inline]] inline float gate(float z) {
  if constexpr (kHard) return std::min(std::max(0.2f * z + 0.5f, 0.0f), 1.0f);
  return vector_sigmoid(z);
}
// From the gate's value.
template <bool kHard>
[[gnu::always_inline]] inline float gate_slope(float y) {
  if constexpr (kHard) return y > 0.0f && y < 1.0f ? 0.2f : 0.0f;
  return y * (1.0f - y);
}

}  // namespace

template <bool kHard>
[[gnu::always_inline]] inline void lstm_forward(const GateState& s, int64_t units) {
  const float *x = s.input, *y = s.recurrent;
  for (int64_t k = 0; k < units; ++k) {
    const float i = gate<kHard>(x[k] + y[k]);
    const float f = gate<kHard>(x[units + k] + y[units + k]);
    const float g = vector_tanh(x[2 * units + k] + y[2 * units + k]);
    const float o = gate<kHard>(x[3 * units + k] + y[3 * units + k]);
    const float c = f * s.last_cell[k] + i * g;
    s.kept[k] = i;
    s.kept[units + k] = f;
    s.kept[2 * units + k] = g;
    s.kept[3 * units + k] = o;
    s.cell[k] = c;
    s.output[k] = o * vector_tanh(c);
  }
}
RONDO_CLONES void lstm_forward_row(const GateState& s, int64_t units, bool hard) {
  return hard ? lstm_forward<true>(s, units) : lstm_forward<false>(s, units);
}

template <bool kHard>
[[gnu::always_inline]] inline void lstm_backward(const GateGradient& g, int64_t units) {
  for (int64_t k = 0; k < units; ++k) {
    const float in = g.kept[k], forget = g.kept[units + k], update = g.kept[2 * units + k],
                out = g.kept[3 * units + k];
    const float dh = (g.grad_output != nullptr ? g.grad_output[k] : 0.0f) + g.grad_next[k];
    const float t = vector_tanh(g.cell[k]);
    const float dc = g.grad_cell[k] + dh * out * (1.0f - t * t);
    g.grad_input[k] = dc * update * gate_slope<kHard>(in);
    g.grad_input[units + k] = dc * g.last_cell[k] * gate_slope<kHard>(forget);
    g.grad_input[2 * units + k] = dc * in * (1.0f - update * update);
    g.grad_input[3 * units + k] = dh * t * gate_slope<kHard>(out);
    g.grad_cell[k] = dc * forget;
  }
}
RONDO_CLONES void lstm_backward_row(const GateGradient& g, int64_t units, bool hard) {
  return hard ? lstm_backward<true>(g, units) : lstm_backward<false>(g, units);
}

template <bool kHard>
[[gnu::always_inline]] inline void gru_forward(const GateState& s, int64_t units) {
  const float *x = s.input, *y = s.recurrent;
  for (int64_t k = 0; k < units; ++k) {
    const float z = gate<kHard>(x[k] + y[k]);
    const float r = gate<kHard>(x[units + k] + y[units + k]);
    const float candidate = y[2 * units + k];
    const float g = vector_tanh(x[2 * units + k] + r * candidate);
    s.kept[k] = z;
    s.kept[units + k] = r;
    s.kept[2 * units + k] = g;
    s.kept[3 * units + k] = candidate;
    s.output[k] = z * s.last_output[k] + (1.0f - z) * g;
  }
}
RONDO_CLONES void gru_forward_row(const GateState& s, int64_t units, bool hard) {
  return hard ? gru_forward<true>(s, units) : gru_forward<false>(s, units);
}

template <bool kHard>
[[gnu::always_inline]] inline void gru_backward(const GateGradient& g, int64_t units) {
  for (int64_t k = 0; k < units; ++k) {
    const float z = g.kept[k], r = g.kept[units + k], update = g.kept[2 * units + k],
                candidate = g.kept[3 * units + k];
    const float dh = (g.grad_output != nullptr ? g.grad_output[k] : 0.0f) + g.grad_next[k];
    const float d_update = dh * (1.0f - z) * (1.0f - update * update);
    const float d_z = dh * (g.last_output[k] - update) * gate_slope<kHard>(z);
    const float d_r = d_update * candidate * gate_slope<kHard>(r);
    g.grad_input[k] = d_z;
    g.grad_input[units + k] = d_r;
    g.grad_input[2 * units + k] = d_update;
    g.grad_recurrent[k] = d_z;
    g.grad_recurrent[units + k] = d_r;
    g.grad_recurrent[2 * units + k] = d_update * r;
    g.grad_last[k] = dh * z;
  }
}
RONDO_CLONES void gru_backward_row(const GateGradient& g, int64_t units, bool hard) {
  return hard ? gru_backward<true>(g, units) : gru_backward<false>(g, units);
}

template <bool kHard>
[[gnu::always_inline]] inline void gru_reset(const GateState& s, int64_t units) {
  const float *x = s.input, *y = s.recurrent;
  const float* last = s.last_dropped != nullptr ? s.last_dropped : s.last_output;
  for (int64_t k = 0; k < units; ++k) {
    const float r = gate<kHard>(x[units + k] + y[units + k]);
    s.kept[k] = gate<kHard>(x[k] + y[k]);
    s.kept[units + k] = r;
    s.reset[k] = r * last[k];
  }
}
RONDO_CLONES void gru_reset_row(const GateState& s, int64_t units, bool hard) {
  return hard ? gru_reset<true>(s, units) : gru_reset<false>(s, units);
}

RONDO_CLONES void gru_candidate_row(const GateState& s, int64_t units) {
  const float *x = s.input, *y = s.recurrent;
  for (int64_t k = 0; k < units; ++k) {
    const float z = s.kept[k], g = vector_tanh(x[2 * units + k] + y[2 * units + k]);
    s.kept[2 * units + k] = g;
    s.output[k] = z * s.last_output[k] + (1.0f - z) * g;
  }
}

RONDO_CLONES void gru_candidate_backward_row(const GateGradient& g, int64_t units) {
  for (int64_t k = 0; k < units; ++k) {
    const float update = g.kept[2 * units + k];
    const float dh = (g.grad_output != nullptr ? g.grad_output[k] : 0.0f) + g.grad_next[k];
    g.grad_candidate[k] = 0.0f;
    g.grad_candidate[units + k] = 0.0f;
    g.grad_candidate[2 * units + k] = dh * (1.0f - g.kept[k]) * (1.0f - update * update);
  }
}

template <bool kHard>
[[gnu::always_inline]] inline void gru_reset_backward(const GateGradient& g, int64_t units) {
  const float* last = g.last_dropped != nullptr ? g.last_dropped : g.last_output;
  for (int64_t k = 0; k < units; ++k) {
    const float z = g.kept[k], r = g.kept[units + k], update = g.kept[2 * units + k], sent = g.grad_reset[k];
    const float dh = (g.grad_output != nullptr ? g.grad_output[k] : 0.0f) + g.grad_next[k];
    const float d_z = dh * (g.last_output[k] - update) * gate_slope<kHard>(z);
    const float d_r = sent * last[k] * gate_slope<kHard>(r);
    g.grad_input[k] = d_z;
    g.grad_input[units + k] = d_r;
    g.grad_input[2 * units + k] = dh * (1.0f - z) * (1.0f - update * update);
    g.grad_recurrent[k] = d_z;
    g.grad_recurrent[units + k] = d_r;
    g.grad_recurrent[2 * units + k] = 0.0f;
    g.grad_reset[k] = sent * r;
    g.grad_last[k] = dh * z;
  }
}
RONDO_CLONES void gru_reset_backward_row(const GateGradient& g, int64_t units, bool hard) {
  return hard ? gru_reset_backward<true>(g, units) : gru_reset_backward<false>(g, units);
}

}  // namespace rondo::cpu
