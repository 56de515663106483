// The small kernels of a training step that belong to no layer: they keep on the device what would otherwise
// need the host in the middle of the step.
#pragma once

#include <cstdint>

#include "runtime/kernels/kernel.h"

namespace rondo {

// Clipping by global norm, made for a limit > 0. With norm = sqrt(square_sums[0] + ... + square_sums[count -
// 1]) / state->loss_scale, added in this order in float64:
//   state->clip_scale *= float32(limit / max(norm, limit)), NaN where the norm is NaN;  *norm_out = norm.
class ClipKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const double* square_sums, int64_t count, StepState* state,
                   double* norm_out) = 0;
};

// How the loss scale of float16 adapts, with the defaults of Keras' LossScaleOptimizer.
struct LossScaling {
  float initial = 32768.0f;
  int32_t growth_steps = 2000;  // so many steps in a row without an overflow double it
};

// What loss scaling keeps from step to step, in memory of the device.
struct LossScale {
  float scale = 1.0f;      // of the next step
  int32_t good_steps = 0;  // since the scale changed
  int64_t skipped = 0;     // steps of the training that changed no weight
};

// Loss scaling without the host. A gradient of float16 that overflows is infinite or NaN, and so are its sum
// over ranks, equal on all of them, and the sum of its squares: every rank comes to the same decision by
// itself.
class LossScaleKernel : public Kernel {
 public:
  // In front of a step whose StepState knows nothing of it: the loss's gradients come out times scale->scale
  // (through state->inverse_batch), updates undo that (state->gradient_scale), and state->update counts the
  // steps that were not skipped.
  virtual void begin(const Execution& on, const LossScale* scale, StepState* state) = 0;
  // Behind the reduction, given the sums of squares of all gradients. Where they are finite the step is good,
  // and the last of LossScaling::growth_steps good ones doubles the scale unless that overflows. Else
  // state->skip is set, and the scale is halved, to no less than 1.
  virtual void decide(const Execution& on, const double* square_sums, int64_t count, LossScale* scale,
                      StepState* state) = 0;
};

// What rides behind the last bucket of gradients: tail[i] = float32(sums[i]) for i < count, and
// tail[count] = on.state->vote.
class TailKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const double* sums, int64_t count, float* tail) = 0;
};

}  // namespace rondo
