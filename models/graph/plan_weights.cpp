// PlanBuilder's part that is about weights: their parameters, gradients, penalties, and copies in 16 bits.
#include <algorithm>

#include "models/graph/layer.h"
#include "models/graph/plan_builder.h"
#include "models/graph/weights.h"
#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

// Sums of weights do not care how the elements lie.
AddKernel& PlanBuilder::weight_sum_kernel(const Parameter& parameter) {
  if (parameter.desc.layout.canonical()) return add_kernel(parameter.desc);
  return add_kernel({.shape = {parameter.desc.bytes() / dtype_size(DType::kF32)}});
}

std::optional<Layout> PlanBuilder::imposed_layout(const Weight& weight) const {
  if (!weight.on_device()) return std::nullopt;
  return weight.parameter.desc.layout;
}

Parameter& PlanBuilder::parameter(Weight& weight, const TensorDesc& desc) {
  if (!weight.on_device()) put_on_device(weight, desc, *backends_.front(), stream_);
  RONDO_CHECK(weight.parameter.desc == desc);
  Parameter& parameter = weight.parameter;
  if (training() && parameter.trainable) ++uses_[&parameter].uses;
  const auto is_same = [&](const Penalty& penalty) { return penalty.parameter == &parameter; };
  if (weight.regularizer && std::none_of(penalties_.begin(), penalties_.end(), is_same)) {
    penalties_.push_back({&parameter, weight.regularizer});
  }
  if (device_ > 0) return replica(weight);
  return parameter;
}

// A rank's share of a penalty is that of its rows in the batch, in the loss and in the gradient: summed over
// the ranks it counts once, whatever the split, and needs no pass of its own behind the reduction.
void PlanBuilder::append_penalties(double* const* sum) {
  for (Penalty& penalty : penalties_) {
    const Parameter& parameter = *penalty.parameter;
    PenaltyKernel& kernel = own(backend().penalty({.weights = parameter.desc,
                                                   .rows = rows(),
                                                   .l1 = penalty.regularizer.l1,
                                                   .l2 = penalty.regularizer.l2}));
    penalty.kernel = &kernel;
    add_step({.name = parameter.name + ": penalty",
              .kernel = &kernel,
              .reads = {},
              .writes = {},
              .run = [&kernel, &parameter, sum](const Execution& on) {
                kernel.add_loss(on, parameter.value, *sum);
              }});
  }
  for (const auto& [value, spec] : activity_penalties_) {
    const ValueId here = on_device(value);
    PenaltyKernel& kernel = own(backend().penalty(spec));
    const Tensor& at = tensor(here);
    add_step({.name = plan_->values[static_cast<size_t>(value)].name + ": activity penalty",
              .kernel = &kernel,
              .reads = {here},
              .writes = {},
              .run = [&kernel, &at, sum](const Execution& on) { kernel.add_loss(on, at, *sum); }});
  }
}

// The sum over all rows of a batch, divided by their number: a rank adds that of its rows to its sum of
// losses.
void PlanBuilder::add_activity_penalty(ValueId result, const Regularizer& regularizer) {
  const ValueId value = in_type(result, DType::kF32);
  tensor(value);
  const PenaltySpec spec{.weights = desc(value), .rows = 1, .l1 = regularizer.l1, .l2 = regularizer.l2};
  state(value).kept = true;
  state(result).penalized = true;
  activity_penalties_.emplace_back(value, spec);
  on_backward(result, [this, value, spec](Gradient) {
    PenaltyKernel& kernel = own(backend().penalty(spec));
    const ValueId slope = add_value(desc(value), "activity penalty gradient");
    const Tensor& at = tensor(value);
    const Tensor& to = tensor(slope);
    add_step({.name = plan_->values[static_cast<size_t>(value)].name + ": activity penalty gradient",
              .kernel = &kernel,
              .reads = {value},
              .writes = {slope},
              .run = [&kernel, &at, &to](const Execution& on) {
                on.stream.fill_zero(to.data, to.bytes());
                kernel.add_gradient(on, at, to);
              }});
    add_gradient(value, {slope, true});
  });
}

void PlanBuilder::append_penalty_gradient(Parameter& parameter) {
  for (const Penalty& penalty : penalties_) {
    if (penalty.parameter != &parameter || penalty.kernel == nullptr) continue;
    PenaltyKernel& kernel = *penalty.kernel;
    add_step({.name = parameter.name + ": penalty gradient",
              .kernel = &kernel,
              .reads = {},
              .writes = {},
              .run = [&kernel, &parameter](const Execution& on) {
                kernel.add_gradient(on, parameter.value, parameter.grad);
              }});
  }
}

WeightOperand PlanBuilder::weight_operand(const Parameter& parameter, DType dtype) {
  if (dtype == parameter.desc.dtype) return {&parameter.value, -1};
  RONDO_CHECK(parameter.desc.bytes() == parameter.desc.elements() * dtype_size(DType::kF32));
  for (const auto& [known, copy] : rounded_) {
    if (known == &parameter) return {&tensor(copy), copy};
  }
  const ValueId copy = add_value({parameter.desc.shape, dtype}, parameter.name + " rounded");
  rounded_.emplace_back(&parameter, copy);
  return {&tensor(copy), copy};
}

// One step in front of all others of the device: what the kernels read is then the same through the pass.
void PlanBuilder::round_weights(int device, std::vector<PlanStep>& front) {
  std::vector<std::pair<const Parameter*, ValueId>> rounded;
  for (const auto& each : rounded_) {
    if (this->device(each.second) == device) rounded.push_back(each);
  }
  if (rounded.empty()) return;
  RoundKernel& kernel = own(backends_[static_cast<size_t>(device)]->round(compute_dtype()));
  struct Operands {
    std::vector<std::pair<const Parameter*, const Tensor*>> pairs;
    std::vector<Tensor> from, to;  // as they lie in this pass
  };
  const auto operands = std::make_shared<Operands>();
  PlanStep step{.name = fmt::format("weights in {}", dtype_name(compute_dtype())),
                .kernel = &kernel,
                .reads = {},
                .writes = {},
                .device = device};
  for (const auto& [parameter, copy] : rounded) {
    operands->pairs.emplace_back(parameter, &tensor(copy));
    step.writes.push_back(copy);
  }
  operands->from.resize(rounded.size());
  operands->to.resize(rounded.size());
  step.run = [&kernel, operands](const Execution& on) {
    for (size_t i = 0; i < operands->pairs.size(); ++i) {
      operands->from[i] = operands->pairs[i].first->value;
      operands->to[i] = *operands->pairs[i].second;
    }
    kernel.run(on, operands->from, operands->to);
  };
  front.push_back(std::move(step));
}

WeightGradient PlanBuilder::begin_weight_gradient(Parameter& parameter) {
  const WeightUse& use = uses_.at(&original(parameter));
  const bool first = use.spread ? use.parts.empty() && device_ == 0 : !use.written;
  if (first) return {&parameter.grad, -1};
  const ValueId temporary = add_value(parameter.desc, parameter.name + " gradient");
  return {&tensor(temporary), temporary};
}

void PlanBuilder::end_weight_gradient(Parameter& parameter, const WeightGradient& gradient) {
  WeightUse& use = uses_.at(&original(parameter));
  if (use.spread) {
    use.parts.push_back(gradient.temporary);
    if (--use.uses == 0) spread_.push_back(&original(parameter));
    return;
  }
  if (gradient.temporary >= 0) {
    AddKernel& kernel = weight_sum_kernel(parameter);
    const Tensor& part = *gradient.tensor;
    const Tensor& sum = parameter.grad;
    add_step({.name = parameter.name + ": add gradients",
              .kernel = &kernel,
              .reads = {gradient.temporary},
              .writes = {},
              .run = [&kernel, &part, &sum](const Execution& on) { kernel.run(on, sum, part, sum); }});
  }
  use.written = true;
  if (--use.uses > 0) return;
  append_penalty_gradient(parameter);
  plan_->backward.back().ready.push_back(&parameter);
}

}  // namespace rondo
