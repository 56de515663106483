// What the forward and the backward steps of a recurrent layer share. Internal to this folder.
#pragma once

#include <memory>
#include <string>

#include "models/graph/layer.h"
#include "models/layers/recurrence.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

constexpr int64_t kFloatBytes = sizeof(float);

// A part of a tensor, whose memory is known when the plan runs.
inline Tensor part_of(const Tensor& whole, int64_t offset, const Shape& shape) {
  if (!whole) return {};
  return {{.shape = shape}, whole.as<float>() + offset};
}

// Everything that the steps of one call share. Time is the outer axis inside, in the order in which it is
// walked: slices of a step are contiguous.
struct Recurrent {
  GateSpec spec;
  int64_t time = 0, features = 0;
  bool sequences = false;
  bool backwards = false;
  bool passes_on = false;  // somebody needs the gradient of the input
  bool masked = false;
  DenseKernel* input = nullptr;       // (time rows, features) to the gates
  DenseKernel* state = nullptr;       // (rows, units) to the gates, one time step
  DenseKernel* all_states = nullptr;  // the same for all time steps: the gradients of its weights
  GateKernel* gates = nullptr;
  DropoutKernel* drop_state = nullptr;  // (rows, units); drops the same elements at all time steps
  Parameter *kernel = nullptr, *recurrent = nullptr, *bias = nullptr;

  int64_t columns() const { return gate_count(spec.kind) * spec.units; }
  int64_t slice() const { return spec.rows * spec.units; }  // of states
  int64_t gate_slice() const { return spec.rows * columns(); }
  Shape step() const { return {spec.rows, spec.units}; }
  bool lstm() const { return spec.kind == Recurrence::kLstm; }
  bool reset_before() const { return spec.kind == Recurrence::kGruResetBefore; }
  // A part of the last state's gradient does not go through the products.
  bool passes_state() const { return !lstm() || masked; }
  bool state_bias() const { return bias != nullptr && spec.kind == Recurrence::kGru; }
  // A bias or its gradient: of the input, and of the state.
  Tensor input_part(const Tensor& whole) const { return part_of(whole, 0, {columns()}); }
  Tensor state_part(const Tensor& whole) const {
    return state_bias() ? part_of(whole, columns(), {columns()}) : Tensor{};
  }
  // Of time step t in the order of the walk, for the gates.
  const float* mask_at(const Tensor& mask, int64_t t) const {
    return masked ? mask.as<const float>() + (backwards ? time - 1 - t : t) : nullptr;
  }
};
using RecurrentPtr = std::shared_ptr<const Recurrent>;

// What a call keeps: states and cells begin with the zeros in front of the first time step. -1: not there.
struct RecurrentValues {
  ValueId rows = -1;     // (time rows, features)
  ValueId input = -1;    // (time rows, gates): the input's products
  ValueId states = -1;   // (time + 1, rows, units)
  ValueId cells = -1;    // the same; LSTM
  ValueId kept = -1;     // (time, rows, 4 units)
  ValueId product = -1;  // (rows, gates): the state's, of one time step
  ValueId dropped = -1;  // (time, rows, units): states with dropout
  ValueId resets = -1;   // (time, rows, units): what the second product of a GRU with reset before reads
  ValueId mask = -1;     // (rows, time)
};

// The tensors of `values`, empty where there is none.
struct RecurrentTensors {
  const Tensor &input, &states, &cells, &kept, &product, &dropped, &resets, &mask;
  RecurrentTensors(PlanBuilder& builder, const RecurrentValues& values);
};

// `gradient`: of the states that the layer gives, (time, rows, units) or (rows, units).
void append_recurrence_gradient(PlanBuilder& builder, const RecurrentPtr& r, const RecurrentValues& values,
                                const Gradient& gradient, const std::string& name);

}  // namespace rondo
