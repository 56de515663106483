// Plan: a model compiled for one number of rows: a flat list of steps over planned memory.
//
// A plan may be laid over several devices: a step then runs on one of them and touches memory of that device
// alone, but for copies, which read another's. Steps of one device run in their order; steps of two are
// ordered by signals. A pass begins on all devices behind the work that was queued in front of it, and work
// behind it comes after the pass on all devices. Parameters, inputs, labels and results lie on device 0.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
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
  int device = 0;
};

struct PlanStep {
  std::string name;                // "conv2d", "conv2d: kernel gradient"
  const Kernel* kernel = nullptr;  // for its report and its scratch memory
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::function<void(const Execution&)> run = {};
  std::vector<Parameter*> ready = {};  // whose gradients are final after this step; of device 0's steps
  int device = 0;
  std::vector<int> waits = {};  // signals of other devices' earlier steps of the pass, before it runs
  int signal = -1;              // given when it has run; -1: nobody waits for it
};

// A parameter as the steps of another device than 0 see it: its value is a copy.
struct PlanReplica {
  Parameter parameter;
  Parameter* original = nullptr;
  ValueId value = -1;
  bool on_request = false;  // it changes within a pass, so steps copy it when they need it
};

// What a plan needs of a device.
struct PlanMemory {
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;
};

struct Plan {
  int64_t rows = 0;
  Mode mode = Mode::kInference;
  std::deque<PlanValue> values;  // steps keep references to their tensors
  std::vector<Storage> storages;
  std::vector<PlanStep> forward;
  std::vector<PlanStep> backward;
  std::vector<ValueId> inputs;
  std::vector<ValueId> labels;   // of the outputs that have an objective
  std::vector<ValueId> weights;  // ... and of their losses; without memory: all 1
  std::vector<ValueId> outputs;  // canonical; in plans for prediction
  int64_t arena_bytes = 0;       // of device 0, as the next
  int64_t scratch_bytes = 0;
  std::vector<PlanMemory> others;              // of device 1, 2, ...; empty where every step runs on device 0
  std::deque<PlanReplica> replicas;            // steps keep references to their parameters
  std::vector<int> signals;                    // by signal: the device of the step that gives it
  std::vector<std::unique_ptr<Event>> events;  // for the signals, where devices have queues
  std::vector<std::unique_ptr<Kernel>> kernels;

  // Views of the caller's memory: (view, the external value it shows).
  std::vector<std::pair<ValueId, ValueId>> external_views;

  void set_external(ValueId value, void* data);
  // Points every value into the arena of its device, which has at least arena_bytes.
  void bind(void* arena, std::span<const Buffer> others = {});
  // Where every step runs on device 0.
  void run_forward(const Execution& on) const;
  void run_backward(const Execution& on, GradSink& sink) const;
  // The steps with their kernels, layouts and places in memory, for diagnosis.
  std::string describe() const;
};

}  // namespace rondo
