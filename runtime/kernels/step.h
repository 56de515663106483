// The small kernels of a training step that belong to no layer: they keep on the device what would otherwise
// need the host in the middle of the step.
#pragma once

#include <cstdint>

#include "runtime/kernels/kernel.h"

namespace rondo {

// Clipping by global norm, made for a limit > 0. With norm = sqrt(square_sums[0] + ... + square_sums[count -
// 1]), added in this order in float64:
//   state->gradient_scale *= float32(limit / max(norm, limit)), NaN where the norm is NaN;  *norm_out = norm.
class ClipKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const double* square_sums, int64_t count, StepState* state,
                   double* norm_out) = 0;
};

// What rides behind the last bucket of gradients: tail[i] = float32(sums[i]) for i < count, and
// tail[count] = on.state->vote.
class TailKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const double* sums, int64_t count, float* tail) = 0;
};

}  // namespace rondo
