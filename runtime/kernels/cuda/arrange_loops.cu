#include "runtime/kernels/cuda/arrange_loops.h"

#include <cmath>

#include "runtime/kernels/arrange.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

struct Permute {
  int rank;
  int64_t extents[6], strides[6];
  int64_t first;
  const float* x;
  float* y;
  RONDO_DEVICE void operator()(int64_t i) const {
    int64_t rest = i, at = first;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t above = rest / extents[axis];
      at += (rest - above * extents[axis]) * strides[axis];
      rest = above;
    }
    y[i] = x[at];
  }
};

struct BinaryForward {
  BinaryArguments a;
  float* out;
  RONDO_DEVICE void operator()(int64_t i) const {
    const float x = a.x[i], y = a.y[i];
    switch (a.function) {
      case Binary::kWeightedSum:
        out[i] = a.a * x + a.b * y;
        return;
      case Binary::kMultiply:
        out[i] = x * y;
        return;
      case Binary::kMaximum:
        out[i] = x >= y || x != x ? x : y;
        return;
      case Binary::kMinimum:
        out[i] = x <= y || x != x ? x : y;
        return;
    }
  }
};

struct BinaryBackward {
  BinaryArguments a;
  const float* dout;
  float *dx, *dy;
  RONDO_DEVICE void operator()(int64_t i) const {
    const float g = dout[i];
    switch (a.function) {
      case Binary::kWeightedSum:
        dy[i] = a.b * g;
        dx[i] = a.a * g;
        return;
      case Binary::kMultiply: {
        const float x = a.x[i], y = a.y[i];
        dy[i] = g * x;
        dx[i] = g * y;
        return;
      }
      case Binary::kMaximum:
      case Binary::kMinimum: {
        const bool first = a.function == Binary::kMaximum ? a.x[i] >= a.y[i] : a.x[i] <= a.y[i];
        dy[i] = first ? 0.0f : g;
        dx[i] = first ? g : 0.0f;
        return;
      }
    }
  }
};

struct PenaltyParts {
  PenaltyArguments a;
  int64_t part;
  double* parts;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    const int64_t begin = task * part, end = begin + part < a.count ? begin + part : a.count;
    double absolute = 0.0, square = 0.0;
    for (int64_t i = begin + team.rank(); i < end; i += team.size()) {
      const auto w = static_cast<double>(a.weights[i]);
      absolute += std::fabs(w);
      square += w * w;
    }
    absolute = team.sum(absolute);
    square = team.sum(square);
    if (team.rank() == 0) parts[task] = a.l1 * absolute + a.l2 * square;
  }
};

struct AddParts {
  const double* parts;
  int64_t count;
  double factor;
  double* sum;
  RONDO_DEVICE void operator()(int64_t) const {
    double total = 0.0;
    for (int64_t i = 0; i < count; ++i) total += parts[i];
    *sum += factor * total;
  }
};

struct PenaltyGradient {
  PenaltyArguments a;
  const StepState* state;
  float* grad;
  struct Prepared {
    float l1, l2;
  };
  RONDO_DEVICE Prepared prepare() const {
    const double share = static_cast<double>(a.rows) * static_cast<double>(state->inverse_batch);
    return {static_cast<float>(share * a.l1), static_cast<float>(share * a.l2)};
  }
  RONDO_DEVICE void operator()(int64_t i, const Prepared& p) const {
    const float w = a.weights[i];
    grad[i] += p.l1 * (w > 0.0f ? 1.0f : (w < 0.0f ? -1.0f : 0.0f)) + 2.0f * p.l2 * w;
  }
};

}  // namespace

void permute(cudaStream_t stream, const Permutation& p, const float* x, float* y) {
  Permute kernel{p.rank, {}, {}, p.first, x, y};
  for (int axis = 0; axis < p.rank; ++axis) {
    kernel.extents[axis] = p.extents[static_cast<size_t>(axis)];
    kernel.strides[axis] = p.strides[static_cast<size_t>(axis)];
  }
  launch_elements("permute", stream, p.count, {reads(x, p.count * kFloat), writes(y, p.count * kFloat)},
                  kernel);
}

void binary_forward(cudaStream_t stream, const BinaryArguments& a, float* out) {
  const int64_t bytes = a.count * kFloat;
  launch_elements("join", stream, a.count, {reads(a.x, bytes), reads(a.y, bytes), writes(out, bytes)},
                  BinaryForward{a, out});
}

void binary_backward(cudaStream_t stream, const BinaryArguments& a, const float* dout, float* dx, float* dy) {
  const int64_t bytes = a.count * kFloat, read = a.function == Binary::kWeightedSum ? 0 : bytes;
  launch_elements(
      "join gradient", stream, a.count,
      {reads(a.x, read), reads(a.y, read), reads(dout, bytes), writes(dx, bytes), writes(dy, bytes)},
      BinaryBackward{a, dout, dx, dy});
}

void add_penalty(cudaStream_t stream, const PenaltyArguments& a, double* parts, double* sum) {
  constexpr int64_t kDouble = sizeof(double);
  const int64_t even = (a.count + kPenaltyParts - 1) / kPenaltyParts;
  const int64_t part = even < 1024 ? 1024 : even, tasks = (a.count + part - 1) / part;
  launch_teams("penalty", stream, tasks, 256,
               {reads(a.weights, a.count * kFloat), writes(parts, tasks * kDouble)},
               PenaltyParts{a, part, parts});
  launch_elements("add penalty", stream, 1,
                  {reads(parts, tasks * kDouble), reads(sum, kDouble), writes(sum, kDouble)},
                  AddParts{parts, tasks, static_cast<double>(a.rows), sum});
}

void add_penalty_gradient(cudaStream_t stream, const PenaltyArguments& a, const StepState* state,
                          float* grad) {
  const int64_t bytes = a.count * kFloat;
  launch_elements(
      "penalty gradient", stream, a.count,
      {reads(state, sizeof(StepState)), reads(a.weights, bytes), reads(grad, bytes), writes(grad, bytes)},
      PenaltyGradient{a, state, grad});
}

}  // namespace rondo::cuda
