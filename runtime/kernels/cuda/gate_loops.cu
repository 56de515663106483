// The gates of recurrent layers: see runtime/kernels/sequence.h.
#include "runtime/base/functors.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/sequence_loops.h"
#include "runtime/kernels/sequence.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Where element i of (rows, units) stands in (rows, count * units), for gate 0.
RONDO_DEVICE inline int64_t gate_at(int64_t i, int64_t units, int64_t count) {
  const int64_t row = i / units;
  return row * count * units + (i - row * units);
}

RONDO_DEVICE inline float gate(float z, bool hard) {
  if (!hard) return Sigmoid().forward(z);
  const float y = 0.2f * z + 0.5f;
  return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
}
// From the gate's value.
RONDO_DEVICE inline float gate_slope(float y, bool hard) {
  if (hard) return y > 0.0f && y < 1.0f ? 0.2f : 0.0f;
  return y * (1.0f - y);
}

// The row of element k of (rows, units) is left out.
RONDO_DEVICE inline bool left_out(const float* mask, int64_t stride, int64_t k, int64_t units) {
  return mask != nullptr && mask[k / units * stride] == 0.0f;
}
RONDO_DEVICE inline float output_gradient(const GateGradient& g, int64_t k) {
  return (g.grad_output != nullptr ? g.grad_output[k] : 0.0f) + g.grad_next[k];
}
// The gradient of a row that only passed its state on.
RONDO_DEVICE inline void pass_back(const GateGradient& g, int64_t k, int64_t u, int64_t gates) {
  const int64_t at = gate_at(k, u, gates);
  for (int64_t i = 0; i < gates; ++i) {
    g.grad_input[at + i * u] = 0.0f;
    if (g.grad_recurrent != nullptr) g.grad_recurrent[at + i * u] = 0.0f;
  }
  if (g.grad_reset != nullptr) g.grad_reset[k] = 0.0f;
  g.grad_last[k] = output_gradient(g, k);
}

struct LstmForward {
  int64_t u;
  bool hard;
  GateState s;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(s.mask, s.mask_stride, k, u)) {
      s.output[k] = s.last_output[k];
      s.cell[k] = s.last_cell[k];
      return;
    }
    const int64_t at = gate_at(k, u, 4);
    const float *x = s.input + at, *y = s.recurrent + at;
    const float i = gate(x[0] + y[0], hard), f = gate(x[u] + y[u], hard);
    const float g = Tanh().forward(x[2 * u] + y[2 * u]), o = gate(x[3 * u] + y[3 * u], hard);
    const float c = f * s.last_cell[k] + i * g;
    float* kept = s.kept + at;
    kept[0] = i;
    kept[u] = f;
    kept[2 * u] = g;
    kept[3 * u] = o;
    s.cell[k] = c;
    s.output[k] = o * std::tanh(c);
  }
};

struct LstmBackward {
  int64_t u;
  bool hard;
  GateGradient g;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(g.mask, g.mask_stride, k, u)) return pass_back(g, k, u, 4);
    const int64_t at = gate_at(k, u, 4);
    const float* kept = g.kept + at;
    const float in = kept[0], forget = kept[u], update = kept[2 * u], out = kept[3 * u];
    const float dh = output_gradient(g, k);
    const float t = std::tanh(g.cell[k]);
    const float dc = g.grad_cell[k] + dh * out * (1.0f - t * t);
    float* dz = g.grad_input + at;
    dz[0] = dc * update * gate_slope(in, hard);
    dz[u] = dc * g.last_cell[k] * gate_slope(forget, hard);
    dz[2 * u] = dc * in * (1.0f - update * update);
    dz[3 * u] = dh * t * gate_slope(out, hard);
    g.grad_cell[k] = dc * forget;
    if (g.grad_last != nullptr) g.grad_last[k] = 0.0f;
  }
};

struct GruForward {
  int64_t u;
  bool hard;
  GateState s;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(s.mask, s.mask_stride, k, u)) {
      s.output[k] = s.last_output[k];
      return;
    }
    const int64_t at = gate_at(k, u, 3);
    const float *x = s.input + at, *y = s.recurrent + at;
    const float z = gate(x[0] + y[0], hard), r = gate(x[u] + y[u], hard);
    const float candidate = y[2 * u];
    const float g = Tanh().forward(x[2 * u] + r * candidate);
    float* kept = s.kept + gate_at(k, u, 4);
    kept[0] = z;
    kept[u] = r;
    kept[2 * u] = g;
    kept[3 * u] = candidate;
    s.output[k] = z * s.last_output[k] + (1.0f - z) * g;
  }
};

struct GruBackward {
  int64_t u;
  bool hard;
  GateGradient g;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(g.mask, g.mask_stride, k, u)) return pass_back(g, k, u, 3);
    const float* kept = g.kept + gate_at(k, u, 4);
    const float z = kept[0], r = kept[u], update = kept[2 * u], candidate = kept[3 * u];
    const float dh = output_gradient(g, k);
    const float d_update = dh * (1.0f - z) * (1.0f - update * update);
    const float d_z = dh * (g.last_output[k] - update) * gate_slope(z, hard);
    const float d_r = d_update * candidate * gate_slope(r, hard);
    const int64_t at = gate_at(k, u, 3);
    float *dx = g.grad_input + at, *dy = g.grad_recurrent + at;
    dx[0] = dy[0] = d_z;
    dx[u] = dy[u] = d_r;
    dx[2 * u] = d_update;
    dy[2 * u] = d_update * r;
    g.grad_last[k] = dh * z;
  }
};

// A GRU with the reset gate before the product, by the halves of its steps.
struct GruReset {
  int64_t u;
  bool hard;
  GateState s;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(s.mask, s.mask_stride, k, u)) {
      s.reset[k] = 0.0f;
      return;
    }
    const int64_t at = gate_at(k, u, 3);
    const float *x = s.input + at, *y = s.recurrent + at;
    const float r = gate(x[u] + y[u], hard);
    float* kept = s.kept + gate_at(k, u, 4);
    kept[0] = gate(x[0] + y[0], hard);
    kept[u] = r;
    s.reset[k] = r * (s.last_dropped != nullptr ? s.last_dropped : s.last_output)[k];
  }
};

struct GruCandidate {
  int64_t u;
  GateState s;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(s.mask, s.mask_stride, k, u)) {
      s.output[k] = s.last_output[k];
      return;
    }
    const int64_t at = gate_at(k, u, 3);
    float* kept = s.kept + gate_at(k, u, 4);
    const float z = kept[0], g = Tanh().forward(s.input[at + 2 * u] + s.recurrent[at + 2 * u]);
    kept[2 * u] = g;
    s.output[k] = z * s.last_output[k] + (1.0f - z) * g;
  }
};

struct GruCandidateBackward {
  int64_t u;
  GateGradient g;
  RONDO_DEVICE void operator()(int64_t k) const {
    float* slope = g.grad_candidate + gate_at(k, u, 3);
    const bool out = left_out(g.mask, g.mask_stride, k, u);
    const float* kept = g.kept + gate_at(k, u, 4);
    slope[0] = slope[u] = 0.0f;
    slope[2 * u] = out ? 0.0f : output_gradient(g, k) * (1.0f - kept[0]) * (1.0f - kept[2 * u] * kept[2 * u]);
  }
};

struct GruResetBackward {
  int64_t u;
  bool hard;
  GateGradient g;
  RONDO_DEVICE void operator()(int64_t k) const {
    if (left_out(g.mask, g.mask_stride, k, u)) return pass_back(g, k, u, 3);
    const float* kept = g.kept + gate_at(k, u, 4);
    const float z = kept[0], r = kept[u], update = kept[2 * u], sent = g.grad_reset[k];
    const float dh = output_gradient(g, k);
    const float last = (g.last_dropped != nullptr ? g.last_dropped : g.last_output)[k];
    const int64_t at = gate_at(k, u, 3);
    float *dx = g.grad_input + at, *dy = g.grad_recurrent + at;
    dx[0] = dy[0] = dh * (g.last_output[k] - update) * gate_slope(z, hard);
    dx[u] = dy[u] = sent * last * gate_slope(r, hard);
    dx[2 * u] = dh * (1.0f - z) * (1.0f - update * update);
    dy[2 * u] = 0.0f;
    g.grad_reset[k] = sent * r;
    g.grad_last[k] = dh * z;
  }
};

int64_t if_there(const float* data, int64_t bytes) {
  return data != nullptr ? bytes : 0;
}
// From the first row's element to the last one's.
int64_t mask_bytes(const GateSpec& spec, const float* mask, int64_t stride) {
  return if_there(mask, ((spec.rows - 1) * stride + 1) * kFloat);
}

}  // namespace

void gates_forward(cudaStream_t stream, const GateSpec& spec, const GateState& s) {
  const int64_t count = spec.rows * spec.units, unit = count * kFloat;
  const int64_t gates = gate_count(spec.kind) * unit, mask = mask_bytes(spec, s.mask, s.mask_stride);
  switch (spec.kind) {
    case Recurrence::kLstm:
      launch_elements("LSTM gates", stream, count,
                      {reads(s.input, gates), reads(s.recurrent, gates), reads(s.last_cell, unit),
                       reads(s.last_output, mask > 0 ? unit : 0), reads(s.mask, mask),
                       writes(s.kept, 4 * unit), writes(s.cell, unit), writes(s.output, unit)},
                      LstmForward{spec.units, spec.hard, s});
      return;
    case Recurrence::kGru:
      launch_elements("GRU gates", stream, count,
                      {reads(s.input, gates), reads(s.recurrent, gates), reads(s.last_output, unit),
                       reads(s.mask, mask), writes(s.kept, 4 * unit), writes(s.output, unit)},
                      GruForward{spec.units, spec.hard, s});
      return;
    case Recurrence::kGruResetBefore:
      launch_elements(
          "GRU candidate", stream, count,
          {reads(s.input, gates), reads(s.recurrent, gates), reads(s.last_output, unit), reads(s.mask, mask),
           reads(s.kept, 4 * unit), writes(s.kept, 4 * unit), writes(s.output, unit)},
          GruCandidate{spec.units, s});
      return;
  }
}

void gates_reset(cudaStream_t stream, const GateSpec& spec, const GateState& s) {
  const int64_t count = spec.rows * spec.units, unit = count * kFloat;
  launch_elements("GRU reset", stream, count,
                  {reads(s.input, 3 * unit), reads(s.recurrent, 3 * unit), reads(s.last_output, unit),
                   reads(s.last_dropped, if_there(s.last_dropped, unit)),
                   reads(s.mask, mask_bytes(spec, s.mask, s.mask_stride)), writes(s.kept, 4 * unit),
                   writes(s.reset, unit)},
                  GruReset{spec.units, spec.hard, s});
}

void gates_backward_candidate(cudaStream_t stream, const GateSpec& spec, const GateGradient& g) {
  const int64_t count = spec.rows * spec.units, unit = count * kFloat;
  launch_elements(
      "GRU candidate gradients", stream, count,
      {reads(g.kept, 4 * unit), reads(g.grad_output, if_there(g.grad_output, unit)), reads(g.grad_next, unit),
       reads(g.mask, mask_bytes(spec, g.mask, g.mask_stride)), writes(g.grad_candidate, 3 * unit)},
      GruCandidateBackward{spec.units, g});
}

void gates_backward(cudaStream_t stream, const GateSpec& spec, const GateGradient& g) {
  const int64_t count = spec.rows * spec.units, unit = count * kFloat;
  const int64_t gates = gate_count(spec.kind) * unit, output = if_there(g.grad_output, unit);
  const int64_t mask = mask_bytes(spec, g.mask, g.mask_stride);
  switch (spec.kind) {
    case Recurrence::kLstm:
      launch_elements("LSTM gate gradients", stream, count,
                      {reads(g.kept, 4 * unit), reads(g.last_cell, unit), reads(g.cell, unit),
                       reads(g.grad_output, output), reads(g.grad_next, unit), reads(g.grad_cell, unit),
                       reads(g.mask, mask), writes(g.grad_cell, unit), writes(g.grad_input, gates),
                       writes(g.grad_last, if_there(g.grad_last, unit))},
                      LstmBackward{spec.units, spec.hard, g});
      return;
    case Recurrence::kGru:
      launch_elements("GRU gate gradients", stream, count,
                      {reads(g.kept, 4 * unit), reads(g.last_output, unit), reads(g.grad_output, output),
                       reads(g.grad_next, unit), reads(g.mask, mask), writes(g.grad_input, gates),
                       writes(g.grad_recurrent, gates), writes(g.grad_last, unit)},
                      GruBackward{spec.units, spec.hard, g});
      return;
    case Recurrence::kGruResetBefore:
      launch_elements("GRU reset gradients", stream, count,
                      {reads(g.kept, 4 * unit), reads(g.last_output, unit),
                       reads(g.last_dropped, if_there(g.last_dropped, unit)), reads(g.grad_output, output),
                       reads(g.grad_next, unit), reads(g.grad_reset, unit), reads(g.mask, mask),
                       writes(g.grad_reset, unit), writes(g.grad_input, gates),
                       writes(g.grad_recurrent, gates), writes(g.grad_last, unit)},
                      GruResetBackward{spec.units, spec.hard, g});
      return;
  }
}

}  // namespace rondo::cuda
