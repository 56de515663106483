// PlanBuilder over several devices.
//
// Nothing but a copy reads memory of another device, and each copy is a step of the device that it brings
// something to. It waits for the step that made what it reads. What it reads is then neither overwritten nor
// given to others before the pass ends, so the device that it comes from never waits for a copy.
//
// Gradients that come from elsewhere are added as late as they can be: a device that waited for them earlier
// would stand still instead of doing its own part. The order in which they are added is that of one device.
#include <fmt/core.h>

#include <algorithm>

#include "models/graph/layer.h"
#include "models/graph/plan_builder.h"
#include "runtime/base/error.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

// In front of the pass, no signal is needed.
int PlanBuilder::signal_of(PlanStep& step) {
  if (step.signal < 0) {
    step.signal = static_cast<int>(plan_->signals.size());
    plan_->signals.push_back(step.device);
  }
  return step.signal;
}

std::vector<int> PlanBuilder::signals_behind(ValueId value) {
  if (storage(value) < 0) return {};
  const auto [backward, index] = writers_[static_cast<size_t>(storage(value))];
  RONDO_CHECK(index >= 0);
  if (backward != backward_) return {};
  std::vector<PlanStep>& steps = backward ? plan_->backward : plan_->forward;
  return {signal_of(steps[static_cast<size_t>(index)])};
}

std::vector<int> PlanBuilder::signals_of_last(int device) {
  for (auto step = plan_->forward.rbegin(); step != plan_->forward.rend(); ++step) {
    if (step->device == device) return {signal_of(*step)};
  }
  return {};
}

ValueId PlanBuilder::add_transfer(ValueId value) {
  std::string name = plan_->values[static_cast<size_t>(value)].name;
  std::vector<int> waits = signals_behind(value);
  const Tensor& from = tensor(value);
  const ValueId copy = add_value(desc(value), fmt::format("{} on device {}", name, device_));
  const Tensor& to = tensor(copy);
  add_step({.name = fmt::format("{}: from device {} to {}", name, device(value), device_),
            .reads = {value},
            .writes = {copy},
            .run = [&from, &to](const Execution& on) { on.stream.copy(to.data, from.data, to.bytes()); },
            .waits = std::move(waits)});
  return copy;
}

ValueId PlanBuilder::on_device(ValueId value) {
  if (device(value) == device_) return value;
  for (const ValueId copy : state(value).elsewhere) {
    if (device(copy) == device_) return copy;
  }
  const int here = std::exchange(device_, device(value));
  materialize(value);
  device_ = here;
  state(value).sent = true;
  const ValueId copy = add_transfer(value);
  state(copy).needs_gradient = needs_gradient(value);
  state(copy).copy_of = value;
  state(value).elsewhere.push_back(copy);
  on_backward(copy, [this, value](Gradient gradient) { add_gradient(value, gradient); });
  return copy;
}

// Others may hold a gradient that is not exclusive, and may want it here, too.
ValueId PlanBuilder::gradient_here(const Gradient& gradient) {
  for (const ValueId copy : state(gradient.id).elsewhere) {
    if (device(copy) == device_) return copy;
  }
  const ValueId copy = add_transfer(gradient.id);
  if (!gradient.exclusive) state(gradient.id).elsewhere.push_back(copy);
  return copy;
}

void PlanBuilder::add_arrivals(ValueId value) {
  for (Gradient gradient : std::exchange(state(value).arrivals, {})) {
    const int from = device(gradient.id);
    if (from != device_) gradient = {gradient_here(gradient), gradient.exclusive};
    add_gradient(value, gradient);
    // That device has made these gradients, too.
    if (from > 0 && device_ == 0) finish_spread_weights(from);
  }
}

Parameter& PlanBuilder::original(Parameter& parameter) const {
  for (const PlanReplica& replica : plan_->replicas) {
    if (&replica.parameter == &parameter) return *replica.original;
  }
  return parameter;
}

// What training never changes within a pass is copied in front of it. Statistics are changed by the layer's
// own steps, on whichever device: they are fetched in front of each call and brought back behind it.
Parameter& PlanBuilder::replica(Weight& weight) {
  Parameter& original = weight.parameter;
  if (training() && original.trainable) uses_.at(&original).spread = true;
  const bool statistic = training() && !weight.trainable;
  const auto found = std::find_if(plan_->replicas.begin(), plan_->replicas.end(), [&](const auto& each) {
    return each.original == &original && device(each.value) == device_;
  });
  PlanReplica* replica = found == plan_->replicas.end() ? nullptr : &*found;
  if (replica == nullptr) {
    const ValueId value = add_value(original.desc, fmt::format("{} on device {}", original.name, device_));
    lasting_.push_back(value);
    plan_->replicas.push_back({.parameter = {}, .original = &original, .value = value});
    replica = &plan_->replicas.back();
    replica->parameter.name = original.name;
    replica->parameter.desc = original.desc;
    replica->parameter.trainable = original.trainable;
    replica->on_request = statistic;
  }
  if (!statistic) return replica->parameter;
  add_step({.name = fmt::format("{}: from device 0 to {}", original.name, device_),
            .reads = {},
            .writes = {replica->value},
            .run =
                [replica](const Execution& on) {
                  const Tensor& to = replica->parameter.value;
                  on.stream.copy(to.data, replica->original->value.data, to.bytes());
                },
            .waits = signals_of_last(0)});
  states_of_layer_.push_back(replica);
  return replica->parameter;
}

void PlanBuilder::return_states() {
  const int from = std::exchange(device_, 0);
  for (PlanReplica* replica : std::exchange(states_of_layer_, {})) {
    add_step({.name = fmt::format("{}: from device {} to 0", replica->original->name, from),
              .reads = {replica->value},
              .writes = {},
              .run =
                  [replica](const Execution& on) {
                    const Tensor& value = replica->parameter.value;
                    on.stream.copy(replica->original->value.data, value.data, value.bytes());
                  },
              .waits = signals_of_last(from)});
  }
}

void PlanBuilder::copy_replicas(std::vector<PlanStep>& front) {
  for (PlanReplica& replica : plan_->replicas) {
    if (replica.on_request) continue;
    const int to = device(replica.value);
    front.push_back({.name = fmt::format("{}: from device 0 to {}", replica.original->name, to),
                     .reads = {},
                     .writes = {replica.value},
                     .run =
                         [&replica](const Execution& on) {
                           const Tensor& value = replica.parameter.value;
                           on.stream.copy(value.data, replica.original->value.data, value.bytes());
                         },
                     .device = to});
  }
}

// No more gradients come: not all calls of a weight need to have one.
void PlanBuilder::close_spread_weights() {
  const size_t closed = spread_.size();
  for (auto& [parameter, use] : uses_) {
    if (!use.spread || use.uses == 0 || use.parts.empty()) continue;
    use.uses = 0;
    spread_.push_back(parameter);
  }
  std::sort(spread_.begin() + static_cast<std::ptrdiff_t>(closed), spread_.end(),
            [](const Parameter* a, const Parameter* b) { return a->name < b->name; });
}

// Those that need nothing from another device than `from`; all of them where that is -1.
void PlanBuilder::finish_spread_weights(int from) {
  if (from < 0) close_spread_weights();
  std::vector<Parameter*> later;
  for (Parameter* parameter : std::exchange(spread_, {})) {
    const WeightUse& use = uses_.at(parameter);
    const bool there = std::all_of(use.parts.begin(), use.parts.end(), [&](ValueId part) {
      return from < 0 || part < 0 || device(part) == 0 || device(part) == from;
    });
    if (there) {
      finish_spread_weight(*parameter, use);
    } else {
      later.push_back(parameter);
    }
  }
  spread_ = std::move(later);
}

void PlanBuilder::finish_spread_weight(Parameter& parameter, const WeightUse& use) {
  const Tensor& sum = parameter.grad;
  for (size_t i = 0; i < use.parts.size(); ++i) {
    ValueId part = use.parts[i];
    if (part < 0) continue;  // the first, in its place already
    if (i == 0) {
      const Tensor& only = tensor(part);
      add_step(
          {.name = fmt::format("{}: gradient from device {}", parameter.name, device(part)),
           .reads = {part},
           .writes = {},
           .run = [&only, &sum](const Execution& on) { on.stream.copy(sum.data, only.data, sum.bytes()); },
           .waits = signals_behind(part)});
      continue;
    }
    if (device(part) != 0) part = add_transfer(part);
    AddKernel& kernel = weight_sum_kernel(parameter);
    const Tensor& more = tensor(part);
    add_step({.name = parameter.name + ": add gradients",
              .kernel = &kernel,
              .reads = {part},
              .writes = {},
              .run = [&kernel, &more, &sum](const Execution& on) { kernel.run(on, sum, more, sum); }});
  }
  append_penalty_gradient(parameter);
  plan_->backward.back().ready.push_back(&parameter);
}

}  // namespace rondo
