#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "runtime/base/functors.h"
#include "runtime/kernels/kernel.h"

namespace rondo {

// One optimizer update over a contiguous span of float32 weights, in place, in one pass.
//
// Each gradient element g enters as clip(g * state.gradient_scale) with clip to [-clip_value, clip_value]
// where clip_value > 0. The learning rate is state.learning_rate; Adam's bias correction uses state.update.
// Where state.skip is set, nothing changes.
struct UpdateSpec {
  std::variant<SgdUpdate, RmsPropUpdate, AdamUpdate> rule;
  float clip_value = 0.0f;
};

// Slots a rule keeps per weight: SGD 0 without momentum, else 1; RMSprop 1; Adam 2 (m, v). All start at zero.
int slot_count(const UpdateSpec& spec);

struct UpdateSpan {
  float* weights = nullptr;
  const float* gradients = nullptr;
  float* slots[2] = {nullptr, nullptr};
  int64_t count = 0;
};

class UpdateKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const UpdateSpan& span) = 0;
};

// *sum (device memory) = sum of squares of the span, accumulated in float64 in a fixed order.
class SquareSumKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const float* values, int64_t count, double* sum) = 0;
};

}  // namespace rondo
