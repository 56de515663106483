#pragma once

#include <cstdint>

namespace rondo {

// Everything that changes from one training step to the next, in one plain block of the device's memory: the
// trainer queues a copy of it in front of each step, and a captured step can be replayed.
struct StepState {
  uint64_t seed = 0;
  int64_t step = 0;            // training steps done before this one, over all epochs: keys dropout
  int64_t first_row = 0;       // position of this rank's first row in the global batch: keys dropout
  float learning_rate = 0.0f;  // after schedule and decay
  int64_t update = 1;          // number of this update, from 1: Adam's t
  // Nadam's: of its momenta of updates 1 to `momentum_updates`, which the device may know to be more than
  // there were.
  double momentum_product = 1.0;
  int64_t momentum_updates = 1;
  float inverse_batch = 0.0f;   // 1 / rows in the global batch: scales every sample's loss gradient
  float gradient_scale = 1.0f;  // applied to gradients before anything looks at them
  float clip_scale = 1.0f;      // applied to gradients behind clipvalue: clipping by global norm lowers it
  float vote = 0.0f;            // this rank's vote to stop, which rides behind the sums of the step
  float loss_scale = 1.0f;  // is in inverse_batch, so in every gradient, until gradient_scale takes it out
  int32_t skip = 0;         // not 0: gradients are not finite, and updates change nothing
};

}  // namespace rondo
