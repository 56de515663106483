// Plan: a model compiled for one number of rows: a flat list of steps over planned memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/memory_plan.h"
#include "runtime/kernels/kernel.h"
#include "runtime/tensor/parameter.h"

namespace rondo {

using ValueId = int;

// A tensor of a plan. Several values may share one storage: views of other shapes, results written in place.
struct PlanValue {
  std::string name;
  Tensor tensor;     // its memory is known once the plan is bound
  int storage = -1;  // index into Plan::storages; -1: memory of the caller (inputs, labels)
};

struct PlanStep {
  std::string name;                // "conv2d", "conv2d: kernel gradient"
  const Kernel* kernel = nullptr;  // for its report and its scratch memory
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::function<void(const Execution&)> run = {};
  std::vector<Parameter*> ready = {};  // whose gradients are final after this step
};

struct Plan {
  int64_t rows = 0;
  Mode mode = Mode::kInference;
  std::deque<PlanValue> values;  // steps keep references to their tensors
  std::vector<Storage> storages;
  std::vector<PlanStep> forward;
  std::vector<PlanStep> backward;
  std::vector<ValueId> inputs;
  ValueId label = -1;
  ValueId weights = -1;  // of the rows' losses; without memory: all 1
  ValueId output = -1;   // canonical; in plans for prediction
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;
  std::vector<std::unique_ptr<Kernel>> kernels;

  // Views of the caller's memory: (view, the external value it shows).
  std::vector<std::pair<ValueId, ValueId>> external_views;

  void set_external(ValueId value, void* data);
  // Points every value into `arena`, which has at least arena_bytes.
  void bind(void* arena);
  void run_forward(const Execution& on) const;
  void run_backward(const Execution& on, GradSink& sink) const;
  // The steps with their kernels, layouts and places in memory, for diagnosis.
  std::string describe() const;
};

}  // namespace rondo
