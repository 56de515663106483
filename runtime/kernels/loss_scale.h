// The arithmetic of LossScaleKernel, written once for hosts and for CUDA.
#pragma once

#include <cmath>

#include "runtime/base/functors.h"
#include "runtime/kernels/step.h"
#include "runtime/tensor/step_state.h"

namespace rondo {

RONDO_HOST_DEVICE inline void begin_scaled_step(const LossScale& scale, StepState& state) {
  state.loss_scale = scale.scale;
  state.inverse_batch *= scale.scale;
  state.gradient_scale /= scale.scale;
  state.update -= scale.skipped;
}

// `square_sum` is that of all gradients, scaled as they are.
RONDO_HOST_DEVICE inline void decide_scaled_step(const LossScaling& scaling, double square_sum,
                                                 LossScale& scale, StepState& state) {
  if (square_sum - square_sum == 0.0) {  // neither infinite nor NaN
    if (++scale.good_steps < scaling.growth_steps) return;
    if (scale.scale * 2.0f < HUGE_VALF) scale.scale *= 2.0f;
    scale.good_steps = 0;
    return;
  }
  state.skip = 1;
  scale.scale = scale.scale > 2.0f ? scale.scale / 2.0f : 1.0f;
  scale.good_steps = 0;
  ++scale.skipped;
}

// Throws InvalidArgument unless the initial scale is finite and at least 1, and growth_steps positive.
void check_loss_scaling(const LossScaling& scaling);

}  // namespace rondo
