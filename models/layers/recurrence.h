// The steps of a recurrent layer in a plan.
#pragma once

#include <string>

#include "models/graph/plan_builder.h"
#include "runtime/kernels/sequence.h"

namespace rondo {

struct RecurrentWeights {
  Weight* kernel = nullptr;
  Weight* recurrent = nullptr;
  // Null without; of the input. That of a GRU with the reset gate behind the product has one for the state
  // behind it.
  Weight* bias = nullptr;
};

struct RecurrentStep {
  Recurrence kind = Recurrence::kLstm;
  int64_t units = 0;
  bool hard_gates = false;  // by hard_sigmoid
  bool return_sequences = false;
  bool go_backwards = false;       // from the last time step to the first; the result is in that order
  float dropout = 0.0f;            // of the inputs, the same elements at all time steps
  float recurrent_dropout = 0.0f;  // of the states in front of the products, likewise
  ValueId mask = -1;               // (rows, time)
  RecurrentWeights weights;
  std::string name;
};

// Appends the recurrence over `in` (rows, time, features), with its gradient. The products of the input are
// one for all time steps, as are the gradients of the weights; what depends on the last state runs step by
// step. A time step that the mask leaves out passes the state on.
ValueId append_recurrence(PlanBuilder& builder, const RecurrentStep& step, ValueId in);

}  // namespace rondo
