// The steps of a recurrent layer in a plan.
#pragma once

#include <string>

#include "models/graph/plan_builder.h"
#include "runtime/kernels/sequence.h"

namespace rondo {

struct RecurrentWeights {
  Weight* kernel = nullptr;
  Weight* recurrent = nullptr;
  Weight* bias = nullptr;  // null without; an LSTM's is of the input, a GRU's has one for the state behind it
};

struct RecurrentStep {
  Recurrence kind = Recurrence::kLstm;
  int64_t units = 0;
  bool return_sequences = false;
  RecurrentWeights weights;
  std::string name;
};

// Appends the recurrence over `in` (rows, time, features), with its gradient. The products of the input are
// one for all time steps, as are the gradients of the weights; what depends on the last state runs step by
// step.
ValueId append_recurrence(PlanBuilder& builder, const RecurrentStep& step, ValueId in);

}  // namespace rondo
