#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/base/update_rules.h"
#include "runtime/kernels/kernel.h"

namespace rondo {

// One parameter's place in a span.
struct TensorRange {
  int64_t offset = 0;
  int64_t count = 0;
  bool plain = false;  // no weight decay, and no step size of its own (LARS, LAMB): biases, say
};

// One optimizer update over a contiguous span of float32 weights, in place. The learning rate is
// state.learning_rate; bias corrections use state.update and state.momentum_product. Where state.skip is set,
// nothing changes. Each gradient element g enters as
//
//   clip(g * state.gradient_scale, [-clip_value, clip_value]) * state.clip_scale * clip_norm / max(norm,
//   clip_norm)
//
// the first clip where clip_value > 0, the last factor where clip_norm > 0, its norm being that of the tensor
// behind the first two. Norms are summed in float64 in an order that depends on `tensors` alone.
struct UpdateSpec {
  std::variant<SgdUpdate, RmsPropUpdate, AdamUpdate, AdagradUpdate, AdadeltaUpdate, AdamaxUpdate, NadamUpdate,
               LarsUpdate, LambUpdate>
      rule;
  float clip_value = 0.0f;
  float clip_norm = 0.0f;
  // In ascending order, not overlapping; what lies between them is left alone or updated like the rest.
  // Needed where works_by_tensor(), else ignored.
  std::vector<TensorRange> tensors = {};
};

// Values a rule keeps for each weight: 0 to 3.
int slot_count(const UpdateSpec& spec);
// Whether the update depends on which weights belong together.
bool works_by_tensor(const UpdateSpec& spec);
// Throws InvalidArgument for negative clips and for tensors that are missing, overlap or are out of order.
void check_update(const UpdateSpec& spec);

// Tensors cut into pieces of bounded size: the parts of norms, and the tasks of a pass by tensor.
struct UpdateChunk {
  int64_t begin = 0;  // in the span
  int64_t count = 0;
  int64_t tensor = 0;
};
std::vector<UpdateChunk> update_chunks(const UpdateSpec& spec);

// The part of the state that UpdateRates are made of.
RONDO_HOST_DEVICE inline RateInput rate_input(const StepState& state) {
  return {state.learning_rate, state.update, state.momentum_updates, state.momentum_product};
}

struct UpdateSpan {
  float* weights = nullptr;
  const float* gradients = nullptr;
  float* slots[3] = {nullptr, nullptr, nullptr};
  int64_t count = 0;
};

class UpdateKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const UpdateSpan& span) = 0;
};

// *sum (device memory) = sum of squares of the span, accumulated in float64 in a fixed order. Made for a
// clip_value > 0, finite elements are first cut to +-clip_value / on.state->gradient_scale, which is what the
// update makes of them.
class SquareSumKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const float* values, int64_t count, double* sum) = 0;
};

}  // namespace rondo
