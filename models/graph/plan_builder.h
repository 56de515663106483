// PlanBuilder: what a layer sees while a model is compiled.
//
// Layers append forward steps as the graph is walked, and leave behind, with on_backward, how their gradient
// is made; finish() walks those in reverse. Every value has one layout. A kernel that wants another one reads
// a copy from in_layout(), which is itself an operation with a gradient, so gradients of a value always
// arrive in the value's own layout.
//
// A layer's steps run on the device that its call is placed on, and see nothing of the others: their inputs
// were brought there before, weights are copies from device 0 where it is another, and so on; see
// plan_devices.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/graph/plan.h"
#include "models/graph/regularizer.h"
#include "runtime/base/precision.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/backend.h"

namespace rondo {

class AddKernel;
struct Weight;

// The gradient of a value. Only an exclusive one may be overwritten.
struct Gradient {
  ValueId id = -1;
  bool exclusive = true;
  explicit operator bool() const { return id >= 0; }
};

// Where one call of a layer writes the gradient of a weight: the parameter's own memory, or, where calls
// share the weight, a temporary that is added to it.
struct WeightGradient {
  const Tensor* tensor = nullptr;
  ValueId temporary = -1;
};

struct WeightOperand {
  const Tensor* tensor = nullptr;
  ValueId rounded = -1;  // the copy, for the reads of steps
};

class PlanBuilder {
 public:
  // `backends` are those of the rank's devices, `stream` is of the first. Without `reuse_memory` every value
  // has memory of its own and nothing is done in place. Throws Unavailable where a backend does not compute
  // in that precision.
  PlanBuilder(std::vector<KernelBackend*> backends, Stream& stream, int64_t rows, Mode mode,
              bool reuse_memory, Precision precision = Precision::kF32);

  // Of the device that the current layer runs on.
  KernelBackend& backend() const { return *backends_[static_cast<size_t>(device_)]; }
  Mode mode() const { return plan_->mode; }
  bool training() const { return plan_->mode == Mode::kTraining; }
  int64_t rows() const { return plan_->rows; }
  // In which layers compute that can.
  DType compute_dtype() const { return rondo::compute_dtype(precision_); }
  bool tf32() const { return precision_ == Precision::kTF32; }

  // Kernels live as long as the plan.
  template <class K>
  K& own(std::unique_ptr<K> kernel) {
    K& reference = *kernel;
    plan_->kernels.push_back(std::move(kernel));
    return reference;
  }

  // --- values
  ValueId add_value(const TensorDesc& desc, std::string name);
  // A value in the caller's memory, canonical.
  ValueId add_external(const TensorDesc& desc, std::string name);
  const TensorDesc& desc(ValueId value) const {
    return plan_->values[static_cast<size_t>(value)].tensor.desc;
  }
  // Stays valid; its memory is known once the plan is bound.
  const Tensor& tensor(ValueId value);
  // The value itself where it has this layout, else a copy, made once for all readers.
  ValueId in_layout(ValueId value, const Layout& layout);
  ValueId canonical(ValueId value) { return in_layout(value, Layout{}); }
  // The value itself where it has this type, else a converted copy, made once for all readers. From float32
  // to the type that layers compute in, or back.
  ValueId in_type(ValueId value, DType dtype);
  // The value itself where it lies on the current device, else a copy, made once for all readers there.
  ValueId on_device(ValueId value);
  // The same elements, in canonical order, under another shape.
  ValueId reshape(ValueId value, const Shape& shape);
  // As reshape to (rows, features), but free until someone asks for more than flattened_source().
  ValueId flatten(ValueId image);
  // The image that a flattened value stands for, for readers that take it as it is; else the value itself.
  ValueId flattened_source(ValueId value) const;
  // A new value in the memory of `value`, for results written in place; only after may_overwrite().
  ValueId overwrite(ValueId value, std::string name);
  // Nobody will read `value` after the current layer.
  bool may_overwrite(ValueId value) const;
  // Backward will read the value: nobody may overwrite it.
  void keep(ValueId value);

  // --- steps
  void add_step(PlanStep step);

  // --- gradients
  bool needs_gradient(ValueId value) const { return state(value).needs_gradient; }
  // How the operation that made `out` passes its gradient on. Ignored where nobody needs it.
  void on_backward(ValueId out, std::function<void(Gradient)> emit);
  // Within on_backward: adds a gradient of `value`, which lies as `value` does. Not exclusive: others hold it
  // too.
  void add_gradient(ValueId value, Gradient gradient);
  // Within on_backward: a value to write a gradient of something that lies as `desc` says; in place of `over`
  // where that is exclusive and lies alike.
  ValueId gradient_value(const TensorDesc& desc, const Gradient& over, std::string name);

  // --- weights
  // The layout that a weight already has on the device.
  std::optional<Layout> imposed_layout(const Weight& weight) const;
  // The weight's parameter, put on the device as `desc` says when it is not there yet. Counts a use.
  Parameter& parameter(Weight& weight, const TensorDesc& desc);
  // The weight as a kernel that computes in `dtype` reads it: its own memory, or a copy, rounded once a pass
  // for all readers, whose elements lie in the parameter's order.
  WeightOperand weight_operand(const Parameter& parameter, DType dtype);
  // Within on_backward: where to write, and that it was written by the steps added so far.
  WeightGradient begin_weight_gradient(Parameter& parameter);
  void end_weight_gradient(Parameter& parameter, const WeightGradient& gradient);
  // Adds the penalties of all weights used so far to **sum, behind the step that wrote it. Their gradients
  // follow once a weight's own is whole.
  void append_penalties(double* const* sum);

  bool has_penalties() const { return !penalties_.empty() || !activity_penalties_.empty(); }
  // Adds the penalty on a layer's result, which nothing may overwrite from here on, and its gradient.
  void add_activity_penalty(ValueId value, const Regularizer& regularizer);

  // A number for the next dropout call, in graph order.
  uint32_t next_dropout_stream() { return dropout_streams_++; }

  // --- for the compiler
  // Steps and values made from here on are on `device`, and values need a gradient when `needed`.
  void begin_layer(bool needed, std::span<const ValueId> inputs, int device = 0);
  // `reads` calls will read this value. What follows is on device 0.
  void end_layer(ValueId out, int reads);
  Plan& plan() { return *plan_; }
  // Emits the backward steps from the gradients added so far and plans the memory.
  std::unique_ptr<Plan> finish();

 private:
  struct ValueState {
    bool needs_gradient = false;
    bool kept = false;
    bool penalized = false;  // itself, by add_activity_penalty
    bool sent = false;       // another device may be copying it: it stays as it is
    int reads = 0;           // calls that will still read it
    ValueId flat_of = -1;    // a flattened value that nobody needed in memory yet
    ValueId copy_of = -1;    // made by in_layout or reshape from this one
    Gradient gradient = {};  // the sum of those added so far
    std::vector<std::pair<Layout, ValueId>> copies = {};
    ValueId converted = -1;               // the copy of the other type
    std::vector<ValueId> elsewhere = {};  // copies on other devices
    std::vector<Gradient> arrivals = {};  // gradients that are added when the sum is asked for
  };
  struct WeightUse {
    int uses = 0;  // calls whose gradient is still to come
    bool written = false;
    // Of a weight that is used on other devices than 0: its gradients so far, -1 for one that is where the
    // sum will be.
    bool spread = false;
    std::vector<ValueId> parts = {};
  };
  struct TapeEntry {
    ValueId out;
    std::function<void(Gradient)> emit;
    int device;
  };
  struct Penalty {
    Parameter* parameter = nullptr;
    Regularizer regularizer;
    PenaltyKernel* kernel = nullptr;
  };

  const ValueState& state(ValueId value) const { return states_[static_cast<size_t>(value)]; }
  ValueState& state(ValueId value) { return states_[static_cast<size_t>(value)]; }
  int storage(ValueId value) const { return plan_->values[static_cast<size_t>(value)].storage; }
  ValueId add_view(ValueId of, const TensorDesc& desc, std::string name);
  ValueId add_copy(ValueId value, const Layout& layout);
  void materialize(ValueId value);
  void link_view(ValueId source, ValueId view);
  bool will_be_read(int storage) const;
  AddKernel& add_kernel(const TensorDesc& desc);
  AddKernel& weight_sum_kernel(const Parameter& parameter);
  void append_penalty_gradient(Parameter& parameter);
  void round_weights(int device, std::vector<PlanStep>& front);
  void emit_backward();
  void finish_gradients();
  void find_lifetimes();

  // --- several devices: plan_devices.cpp
  int device(ValueId value) const { return plan_->values[static_cast<size_t>(value)].device; }
  ValueId add_transfer(ValueId value);
  Parameter& replica(Weight& weight);
  Parameter& original(Parameter& parameter) const;
  void copy_replicas(std::vector<PlanStep>& front);
  void return_states();
  ValueId gradient_here(const Gradient& gradient);
  void add_arrivals(ValueId value);
  void finish_spread_weights(int from);
  void close_spread_weights();
  void finish_spread_weight(Parameter& parameter, const WeightUse& use);
  int signal_of(PlanStep& step);
  std::vector<int> signals_behind(ValueId value);
  std::vector<int> signals_of_last(int device);

  std::vector<KernelBackend*> backends_;
  int device_ = 0;  // of the current layer
  Stream& stream_;
  bool reuse_memory_;
  Precision precision_;
  std::unique_ptr<Plan> plan_;
  std::deque<ValueState> states_;
  std::vector<TapeEntry> tape_;
  std::unordered_map<Parameter*, WeightUse> uses_;
  std::vector<Parameter*> spread_;             // whose gradients are all there, but not yet added
  std::vector<PlanReplica*> states_of_layer_;  // replicas of statistics that the current layer updates
  std::vector<ValueId> lasting_;               // alive through all passes
  // By storage: the step that wrote it last, as (in the backward pass, its place there).
  std::vector<std::pair<bool, int>> writers_;
  std::vector<Penalty> penalties_;  // of regularized weights, in the order of their first use
  std::vector<std::pair<ValueId, PenaltySpec>> activity_penalties_;
  std::vector<std::pair<const Parameter*, ValueId>> rounded_;  // weights that kernels read in 16 bits
  bool backward_ = false;
  bool layer_needs_gradient_ = false;
  uint32_t dropout_streams_ = 0;
};

}  // namespace rondo
