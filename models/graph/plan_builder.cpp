#include "models/graph/plan_builder.h"

#include <algorithm>

#include "models/graph/layer.h"
#include "models/graph/precision.h"
#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

PlanBuilder::PlanBuilder(std::vector<KernelBackend*> backends, Stream& stream, int64_t rows, Mode mode,
                         bool reuse_memory, Precision precision)
    : backends_(std::move(backends)),
      stream_(stream),
      reuse_memory_(reuse_memory),
      precision_(precision),
      plan_(std::make_unique<Plan>()) {
  for (const KernelBackend* each : backends_) check_precision(*each, precision);
  plan_->others.resize(backends_.size() - 1);
  plan_->rows = rows;
  plan_->mode = mode;
}

ValueId PlanBuilder::add_value(const TensorDesc& desc, std::string name) {
  plan_->storages.push_back({.bytes = desc.bytes(), .device = device_});
  writers_.emplace_back(false, -1);
  const int storage = static_cast<int>(plan_->storages.size()) - 1;
  plan_->values.push_back(
      {.name = std::move(name), .tensor = {.desc = desc}, .storage = storage, .device = device_});
  states_.push_back({.needs_gradient = layer_needs_gradient_});
  return static_cast<ValueId>(plan_->values.size()) - 1;
}

ValueId PlanBuilder::add_external(const TensorDesc& desc, std::string name) {
  RONDO_CHECK(desc.layout.canonical());
  plan_->values.push_back({.name = std::move(name), .tensor = {.desc = desc}});
  states_.push_back({});
  return static_cast<ValueId>(plan_->values.size()) - 1;
}

ValueId PlanBuilder::add_view(ValueId of, const TensorDesc& desc, std::string name) {
  plan_->values.push_back({.name = std::move(name), .tensor = {.desc = desc}});
  states_.push_back({.needs_gradient = needs_gradient(of)});
  const ValueId view = static_cast<ValueId>(plan_->values.size()) - 1;
  link_view(of, view);
  return view;
}

void PlanBuilder::link_view(ValueId source, ValueId view) {
  plan_->values[static_cast<size_t>(view)].storage = storage(source);
  plan_->values[static_cast<size_t>(view)].device = device(source);
  if (storage(source) >= 0) return;
  ValueId external = source;
  for (const auto& [other, shown] : plan_->external_views) {
    if (other == source) external = shown;
  }
  plan_->external_views.emplace_back(view, external);
}

const Tensor& PlanBuilder::tensor(ValueId value) {
  materialize(value);
  return plan_->values[static_cast<size_t>(value)].tensor;
}

ValueId PlanBuilder::in_layout(ValueId value, const Layout& layout) {
  materialize(value);
  if (desc(value).layout == layout) return value;
  for (const auto& [have, copy] : state(value).copies) {
    if (have == layout) return copy;
  }
  return add_copy(value, layout);
}

ValueId PlanBuilder::add_copy(ValueId value, const Layout& layout) {
  RONDO_CHECK(device(value) == device_);
  const TensorDesc from = desc(value);
  TensorDesc to = from;
  to.layout = layout;
  const std::string name = plan_->values[static_cast<size_t>(value)].name;
  const ValueId copy = add_value(to, name + " reordered");
  state(copy).needs_gradient = needs_gradient(value);
  state(copy).copy_of = value;
  state(value).copies.emplace_back(layout, copy);
  ReorderKernel& kernel = own(backend().reorder(from, to));
  const Tensor& source = tensor(value);
  const Tensor& target = tensor(copy);
  add_step({.name = name + ": reorder",
            .kernel = &kernel,
            .reads = {value},
            .writes = {copy},
            .run = [&kernel, &source, &target](const Execution& on) { kernel.run(on, source, target); }});
  on_backward(copy, [this, value](Gradient gradient) {
    add_gradient(value, {in_layout(gradient.id, desc(value).layout), gradient.exclusive});
  });
  return copy;
}

ValueId PlanBuilder::in_type(ValueId value, DType dtype) {
  if (desc(value).dtype == dtype) return value;
  if (state(value).converted >= 0) return state(value).converted;
  RONDO_CHECK(device(value) == device_);
  const ValueId source = canonical(value);
  const TensorDesc from = desc(source);
  const TensorDesc to{from.shape, dtype};
  const std::string name = plan_->values[static_cast<size_t>(value)].name;
  const ValueId copy = add_value(to, fmt::format("{} in {}", name, dtype_name(dtype)));
  state(copy).needs_gradient = needs_gradient(value);
  state(copy).copy_of = source;
  state(value).converted = copy;
  ReorderKernel& kernel = own(backend().reorder(from, to));
  const Tensor& in = tensor(source);
  const Tensor& out = tensor(copy);
  add_step({.name = fmt::format("{}: to {}", name, dtype_name(dtype)),
            .kernel = &kernel,
            .reads = {source},
            .writes = {copy},
            .run = [&kernel, &in, &out](const Execution& on) { kernel.run(on, in, out); }});
  on_backward(copy, [this, source](Gradient gradient) {
    add_gradient(source, {in_type(gradient.id, desc(source).dtype), gradient.exclusive});
  });
  return copy;
}

ValueId PlanBuilder::reshape(ValueId value, const Shape& shape) {
  RONDO_CHECK(desc(value).elements() == shape.elements());
  const ValueId source = canonical(value);
  if (desc(source).shape == shape) return source;
  const ValueId view = add_view(source, {shape, desc(source).dtype}, "reshaped");
  state(view).copy_of = source;
  on_backward(view, [this, source](Gradient gradient) {
    add_gradient(source, {add_view(gradient.id, desc(source), "gradient reshaped"), gradient.exclusive});
  });
  return view;
}

ValueId PlanBuilder::flatten(ValueId image) {
  const TensorDesc& from = desc(image);
  if (from.shape.rank() == 2) return image;
  const Shape shape{from.shape[0], from.shape.sample().elements()};
  plan_->values.push_back(
      {.name = "flattened", .tensor = {.desc = {shape, from.dtype}}, .device = device(image)});
  states_.push_back({.needs_gradient = needs_gradient(image), .flat_of = image});
  return static_cast<ValueId>(plan_->values.size()) - 1;
}

ValueId PlanBuilder::flattened_source(ValueId value) const {
  return state(value).flat_of >= 0 ? state(value).flat_of : value;
}

void PlanBuilder::materialize(ValueId value) {
  const ValueId image = std::exchange(state(value).flat_of, -1);
  if (image < 0) return;
  const ValueId source = canonical(image);
  link_view(source, value);
  state(value).copy_of = source;
  on_backward(value, [this, source](Gradient gradient) {
    add_gradient(source, {add_view(gradient.id, desc(source), "gradient unflattened"), gradient.exclusive});
  });
}

ValueId PlanBuilder::overwrite(ValueId value, std::string name) {
  RONDO_CHECK(may_overwrite(value));
  const int memory = storage(value);
  for (ValueState& each : states_) {
    std::erase_if(each.copies, [&](const auto& copy) { return storage(copy.second) == memory; });
    if (each.converted >= 0 && storage(each.converted) == memory) each.converted = -1;
  }
  const TensorDesc same = desc(value);
  const ValueId view = add_view(value, same, std::move(name));
  state(view).needs_gradient = layer_needs_gradient_;
  return view;
}

bool PlanBuilder::will_be_read(int memory) const {
  for (size_t i = 0; i < states_.size(); ++i) {
    const ValueState& each = states_[i];
    const int place = each.flat_of >= 0 ? storage(each.flat_of) : plan_->values[i].storage;
    if (place == memory && (each.kept || each.sent || each.reads > 0)) return true;
  }
  return false;
}

bool PlanBuilder::may_overwrite(ValueId value) const {
  if (!reuse_memory_) return false;
  if (state(value).flat_of >= 0 || storage(value) < 0 || will_be_read(storage(value))) return false;
  // Whoever reads the original later would be given the copy again.
  for (ValueId origin = state(value).copy_of; origin >= 0; origin = state(origin).copy_of) {
    if (storage(origin) < 0 || will_be_read(storage(origin))) return false;
  }
  return true;
}

void PlanBuilder::keep(ValueId value) {
  if (training()) state(value).kept = true;
}

void PlanBuilder::add_step(PlanStep step) {
  int64_t& scratch =
      device_ == 0 ? plan_->scratch_bytes : plan_->others[static_cast<size_t>(device_) - 1].scratch_bytes;
  if (step.kernel) scratch = std::max(scratch, step.kernel->scratch_bytes());
  step.device = device_;
  std::vector<PlanStep>& steps = backward_ ? plan_->backward : plan_->forward;
  for (const ValueId value : step.writes) {
    if (storage(value) >= 0) {
      writers_[static_cast<size_t>(storage(value))] = {backward_, static_cast<int>(steps.size())};
    }
  }
  steps.push_back(std::move(step));
}

void PlanBuilder::on_backward(ValueId out, std::function<void(Gradient)> emit) {
  if (!backward_ && training() && needs_gradient(out)) tape_.push_back({out, std::move(emit), device_});
}

void PlanBuilder::add_gradient(ValueId value, Gradient gradient) {
  if (!needs_gradient(value)) return;
  RONDO_CHECK(desc(gradient.id) == desc(value));
  if (device(gradient.id) != device(value) || !state(value).arrivals.empty()) {
    state(value).arrivals.push_back(gradient);
    return;
  }
  Gradient& sum = state(value).gradient;
  if (!sum) {
    sum = gradient;
    return;
  }
  AddKernel& kernel = add_kernel(desc(value));
  const Gradient over = sum.exclusive ? sum : gradient;
  const ValueId out = gradient_value(desc(value), over, "gradient sum");
  const Tensor& a = tensor(sum.id);
  const Tensor& b = tensor(gradient.id);
  const Tensor& to = tensor(out);
  add_step({.name = plan_->values[static_cast<size_t>(value)].name + ": add gradients",
            .kernel = &kernel,
            .reads = {sum.id, gradient.id},
            .writes = {out},
            .run = [&kernel, &a, &b, &to](const Execution& on) { kernel.run(on, a, b, to); }});
  state(value).gradient = {out, true};
}

ValueId PlanBuilder::gradient_value(const TensorDesc& wanted, const Gradient& over, std::string name) {
  if (reuse_memory_ && over && over.exclusive && storage(over.id) >= 0 && desc(over.id) == wanted) {
    return add_view(over.id, wanted, std::move(name));
  }
  return add_value(wanted, std::move(name));
}

AddKernel& PlanBuilder::add_kernel(const TensorDesc& desc) {
  AddKernel& kernel = own(backend().add(desc));
  RONDO_CHECK(kernel.desc() == desc);
  return kernel;
}

void PlanBuilder::begin_layer(bool needed, std::span<const ValueId> inputs, int device) {
  layer_needs_gradient_ = training() && needed;
  device_ = device;
  for (const ValueId input : inputs) --state(input).reads;
}

void PlanBuilder::end_layer(ValueId out, int reads) {
  state(out).reads += reads;
  return_states();
  device_ = 0;
}

void PlanBuilder::emit_backward() {
  backward_ = true;
  for (auto entry = tape_.rbegin(); entry != tape_.rend(); ++entry) {
    device_ = entry->device;
    add_arrivals(entry->out);
    const Gradient gradient = state(entry->out).gradient;
    // A penalty on a result has a gradient where no loss depends on it, too.
    if (gradient || state(entry->out).penalized) entry->emit(gradient);
  }
  device_ = 0;
  finish_spread_weights(-1);
  finish_gradients();
}

// Of weights that some call uses on which no loss depends. Where none of the others has written a gradient,
// it is zero.
void PlanBuilder::finish_gradients() {
  std::vector<std::pair<Parameter*, WeightUse*>> open;
  for (auto& [parameter, use] : uses_) {
    if (use.uses != 0) open.emplace_back(parameter, &use);
  }
  std::sort(open.begin(), open.end(),
            [](const auto& a, const auto& b) { return a.first->name < b.first->name; });
  for (const auto& [parameter, use] : open) {
    const Tensor& gradient = parameter->grad;
    const bool written = use->written || !use->parts.empty();
    add_step({.name = parameter->name + (written ? ": all gradients" : ": no gradient"),
              .reads = {},
              .writes = {},
              .run = [&gradient, written](const Execution& on) {
                if (!written) on.stream.fill_zero(gradient.data, gradient.bytes());
              }});
    if (!use->parts.empty()) {
      finish_spread_weight(*parameter, *use);
      continue;
    }
    append_penalty_gradient(*parameter);
    plan_->backward.back().ready.push_back(parameter);
  }
}

void PlanBuilder::find_lifetimes() {
  int now = 0;
  const auto touch = [&](ValueId value) {
    const int memory = storage(value);
    if (memory < 0) return;
    Storage& place = plan_->storages[static_cast<size_t>(memory)];
    if (place.first < 0) place.first = now;
    place.last = now;
  };
  for (const auto* steps : {&plan_->forward, &plan_->backward}) {
    std::vector<int> sent;
    for (const PlanStep& step : *steps) {
      for (const ValueId value : step.reads) {
        touch(value);
        if (device(value) != step.device && storage(value) >= 0) sent.push_back(storage(value));
      }
      for (const ValueId value : step.writes) touch(value);
      ++now;
    }
    // What another device copies stays until the pass has ended on both: nothing else tells that it is done.
    for (const int memory : sent) plan_->storages[static_cast<size_t>(memory)].last = now - 1;
  }
  for (const ValueId value : lasting_) {
    Storage& place = plan_->storages[static_cast<size_t>(storage(value))];
    place.first = 0;
    place.last = now;
  }
  for (const ValueId output : plan_->outputs) touch(output);
}

std::unique_ptr<Plan> PlanBuilder::finish() {
  if (training() && !plan_->labels.empty()) emit_backward();
  std::vector<PlanStep> front;
  copy_replicas(front);
  for (int d = 0; d < static_cast<int>(backends_.size()); ++d) round_weights(d, front);
  plan_->forward.insert(plan_->forward.begin(), std::make_move_iterator(front.begin()),
                        std::make_move_iterator(front.end()));
  find_lifetimes();
  plan_->arena_bytes = plan_memory(plan_->storages, reuse_memory_);
  for (size_t d = 0; d < plan_->others.size(); ++d) {
    plan_->others[d].arena_bytes = plan_memory(plan_->storages, reuse_memory_, static_cast<int>(d) + 1);
  }
  tape_.clear();
  return std::move(plan_);
}

}  // namespace rondo
