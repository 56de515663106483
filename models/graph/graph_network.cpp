#include "models/graph/graph_network.h"

#include <algorithm>

#include "models/graph/graph.h"
#include "models/graph/graph_compiler.h"
#include "models/graph/lanes.h"
#include "models/graph/plan.h"
#include "models/graph/weight_constraints.h"
#include "runtime/base/error.h"
#include "runtime/device/allocate_for.h"
#include "runtime/kernels/backend.h"

namespace rondo {
namespace {

// What training will ask for besides its plan: gradients, and as much as any optimizer keeps.
int64_t still_to_come(const ParameterList& parameters) {
  int64_t bytes = 0;
  for (const Parameter* parameter : parameters) {
    if (parameter->trainable && !parameter->grad) bytes += 3 * parameter->desc.bytes();
  }
  return bytes;
}

}  // namespace

GraphNetwork::GraphNetwork(const Graph& graph, KernelBackend& backend, NetworkOptions options)
    : graph_(graph),
      backends_{&backend},
      options_(std::move(options)),
      stream_(backend.device().make_stream()) {
  backends_.insert(backends_.end(), options_.others.begin(), options_.others.end());
  require(options_.nominal_rows > 0, "a network needs a positive nominal number of rows, got {}",
          options_.nominal_rows);
  if (options_.objective) metric_names_ = options_.objective->value_names();
  const auto devices = static_cast<size_t>(graph.devices());
  if (devices > 1 && devices <= backends_.size()) {
    lanes_ = make_lanes(std::span(backends_).first(devices));
    other_arenas_.resize(devices - 1);
    other_scratch_.resize(devices - 1);
    other_scratch_data_.resize(devices - 1);
  }
  // Training kernels choose the layouts of the weights, whatever the network is used for first.
  get_plan(options_.nominal_rows, Purpose::kTrain);
  const auto constrained = [](const Weight* weight) { return static_cast<bool>(weight->constraint); };
  if (std::any_of(graph.weights().begin(), graph.weights().end(), constrained)) {
    constraints_ = std::make_unique<WeightConstraints>(graph, this->backend());
  }
}

GraphNetwork::~GraphNetwork() = default;

const ParameterList& GraphNetwork::parameters() {
  return graph_.parameters();
}

std::vector<Shape> GraphNetwork::output_shapes() const {
  std::vector<Shape> shapes;
  for (const SymbolicTensor& output : graph_.outputs()) shapes.push_back(output.shape());
  return shapes;
}

Plan& GraphNetwork::get_plan(int64_t rows, Purpose purpose) {
  std::unique_ptr<Plan>& slot = plans_[{rows, purpose}];
  if (slot) return *slot;
  const PlanRequest request{.rows = rows,
                            .purpose = purpose,
                            .objective = options_.objective ? &*options_.objective : nullptr,
                            .sums = &sums_,
                            .reuse_memory = options_.reuse_memory,
                            .precision = options_.precision};
  try {
    auto plan = compile_plan(graph_, backends_, *stream_, request);
    reserve(*plan);
    bind(*plan);
    slot = std::move(plan);
  } catch (const OutOfMemory& error) {
    const std::string fits = what_would_fit(request);
    for (const auto& [key, other] : plans_) {
      if (other) reserve(*other);  // the others had enough and get it back
    }
    for (const auto& [key, other] : plans_) {
      if (other) bind(*other);
    }
    raise<OutOfMemory>("preparing {} rows: {}{}", rows, error.what(), fits);
  }
  return *slot;
}

// Measured on a plan for few rows: kernels hold memory of their own. A little too careful, since not all of
// it grows with the rows.
std::string GraphNetwork::what_would_fit(PlanRequest request) {
  if (lanes_) return {};  // which of the devices is short is said already
  Device& device = backend().device();
  const int64_t wanted = request.rows;
  const DeviceMemory before = device.memory();
  if (before.total == 0) return {};
  request.rows = std::clamp<int64_t>(wanted / 16, 1, 32);
  int64_t fit = 0;
  try {
    const auto probe = compile_plan(graph_, backends_, *stream_, request);
    const DeviceMemory with = device.memory();
    const auto each =
        static_cast<double>(with.in_use - before.in_use + probe->arena_bytes + probe->scratch_bytes) /
        static_cast<double>(request.rows);
    int64_t available = before.available + arena_.bytes() + scratch_.bytes();
    if (request.purpose == Purpose::kTrain) available -= still_to_come(graph_.parameters());
    fit = std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(available) / each), 0, wanted - 1);
  } catch (const OutOfMemory&) {
    // Not even these.
  }
  if (fit == 0) return ". Hardly a row would fit: use a smaller model";
  return fmt::format(
      ". About {} rows on a rank would fit: use a batch size of at most {} times the number of ranks", fit,
      fit);
}

Plan& GraphNetwork::plan_for(Stream& stream, int64_t rows, Purpose purpose) {
  const auto found = plans_.find({rows, purpose});
  if (found != plans_.end() && found->second) return *found->second;
  stream.synchronize();
  return get_plan(rows, purpose);
}

void GraphNetwork::reserve(Plan& plan) {
  const auto grow = [&](Buffer& buffer, int64_t bytes, Device& device, std::string_view what) {
    if (buffer && bytes <= buffer.bytes()) return false;
    buffer = {};
    buffer =
        allocate_for(device, std::max<int64_t>(bytes, 64), fmt::format("{} {} rows", what, plan.rows), {});
    return true;
  };
  const auto grow_on = [&](size_t d, const PlanMemory& memory, Buffer& arena, Buffer& scratch) {
    RONDO_CHECK(pending_ == nullptr || memory.arena_bytes <= arena.bytes());
    Device& device = backends_[d]->device();
    if (memory.scratch_bytes > 0) grow(scratch, memory.scratch_bytes, device, "work space for");
    return grow(arena, memory.arena_bytes, device, "the intermediate results of");
  };
  bool moved = grow_on(0, {plan.arena_bytes, plan.scratch_bytes}, arena_, scratch_);
  for (size_t d = 0; d < plan.others.size(); ++d) {
    moved |= grow_on(d + 1, plan.others[d], other_arenas_[d], other_scratch_[d]);
    other_scratch_data_[d] = other_scratch_[d].data();
  }
  if (lanes_) lanes_->prepare(plan);
  if (!moved) return;
  for (const auto& [key, other] : plans_) {
    if (other) bind(*other);
  }
}

void GraphNetwork::bind(Plan& plan) const {
  plan.bind(arena_.data(), other_arenas_);
}

std::optional<std::vector<Buffer>> GraphNetwork::replay_memory() {
  if (lanes_) return std::nullopt;
  return std::vector<Buffer>{arena_, scratch_};
}

void GraphNetwork::run_forward(const Plan& plan, const Execution& on) {
  if (lanes_) return lanes_->run_forward(plan, on, other_scratch_data_);
  plan.run_forward(on);
}

void GraphNetwork::values_of(std::span<const double> sums, double rows, std::span<double> values) {
  RONDO_CHECK(options_.objective.has_value());
  options_.objective->values_of(sums, rows, values);
}

void GraphNetwork::prepare(int64_t rows, Mode mode) {
  if (mode == Mode::kTraining) {
    get_plan(rows, Purpose::kTrain);
  } else {
    get_plan(rows, options_.objective ? Purpose::kEvaluate : Purpose::kPredict);
  }
}

Plan& GraphNetwork::plan(int64_t rows, Purpose purpose) {
  return get_plan(rows, purpose);
}

std::string GraphNetwork::describe(int64_t rows, Mode mode) {
  return get_plan(rows, mode == Mode::kTraining ? Purpose::kTrain : Purpose::kEvaluate).describe();
}

void GraphNetwork::set_inputs(Plan& plan, const Batch& batch) const {
  require(batch.inputs.size() == plan.inputs.size(), "the model has {} inputs, the batch has {}",
          plan.inputs.size(), batch.inputs.size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const TensorDesc& wanted = plan.values[static_cast<size_t>(plan.inputs[i])].tensor.desc;
    const TensorDesc& given = batch.inputs[i].desc;
    if (given.shape != wanted.shape || given.dtype != wanted.dtype || !given.layout.canonical()) {
      raise<InvalidArgument>("input {} of the model must be {} {}, the batch has {} {}", i,
                             dtype_name(wanted.dtype), wanted.shape.text(), dtype_name(given.dtype),
                             given.shape.text());
    }
    plan.set_external(plan.inputs[i], batch.inputs[i].data);
  }
}

void GraphNetwork::set_label(Plan& plan, const Batch& batch, size_t index) const {
  const std::string_view of =
      graph_.outputs()[options_.objective->outputs[index].output].node()->layer->name();
  const TensorDesc& wanted = plan.values[static_cast<size_t>(plan.labels[index])].tensor.desc;
  const Tensor& label = batch.labels[index];
  if (label.desc.dtype != wanted.dtype || label.desc.elements() != wanted.elements()) {
    raise<InvalidArgument>("the loss of {} wants labels {} {}, the batch has {} {}", of,
                           dtype_name(wanted.dtype), wanted.shape.text(), dtype_name(label.desc.dtype),
                           label.desc.shape.text());
  }
  plan.set_external(plan.labels[index], label.data);
  const Tensor weights = index < batch.weights.size() ? batch.weights[index] : Tensor{};
  TensorDesc& planned = plan.values[static_cast<size_t>(plan.weights[index])].tensor.desc;
  plan.set_external(plan.weights[index], weights.data);
  planned.shape = weights ? weights.desc.shape : Shape{plan.rows};
  // Rows, or a leading part of the axes in which a row's predictions lie.
  const auto given = planned.shape.extents();
  const auto most = wanted.shape.extents().first(
      static_cast<size_t>(wanted.shape.rank() - (wanted.dtype == DType::kI32 ? 0 : 1)));
  if (given.size() > most.size() || !std::equal(given.begin(), given.end(), most.begin())) {
    raise<InvalidArgument>("the weights of {}'s losses have shape {}; it must be {} or a leading part of it",
                           of, planned.shape.text(), Shape(most).text());
  }
}

void GraphNetwork::forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) {
  require(options_.objective.has_value(), "the model has no loss: compile it before training or evaluation");
  Plan& plan =
      plan_for(on.stream, batch.rows, mode == Mode::kTraining ? Purpose::kTrain : Purpose::kEvaluate);
  set_inputs(plan, batch);
  require(batch.labels.size() == plan.labels.size(),
          "{} outputs of the model are trained or measured, the batch has {} labels", plan.labels.size(),
          batch.labels.size());
  for (size_t i = 0; i < plan.labels.size(); ++i) set_label(plan, batch, i);
  RONDO_CHECK(sums.size() == sum_count());
  sums_ = sums.data();
  run_forward(plan, {.stream = on.stream, .scratch = scratch_.data(), .state = on.state});
  pending_ = mode == Mode::kTraining ? &plan : nullptr;
}

void GraphNetwork::backward(const Execution& on, GradSink& sink) {
  RONDO_CHECK(pending_ != nullptr);
  const Plan& plan = *std::exchange(pending_, nullptr);
  const Execution here{.stream = on.stream, .scratch = scratch_.data(), .state = on.state};
  if (lanes_) return lanes_->run_backward(plan, here, other_scratch_data_, sink);
  plan.run_backward(here, sink);
}

void GraphNetwork::constrain(const Execution& on) {
  if (constraints_) constraints_->run(on);
}

void GraphNetwork::predict(const Execution& on, const Batch& batch,
                           std::span<const std::span<float>> outputs) {
  pending_ = nullptr;
  Plan& plan = plan_for(on.stream, batch.rows, Purpose::kPredict);
  set_inputs(plan, batch);
  run_forward(plan, {.stream = on.stream, .scratch = scratch_.data(), .state = on.state});
  RONDO_CHECK(outputs.size() == plan.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& result = plan.values[static_cast<size_t>(plan.outputs[i])].tensor;
    RONDO_CHECK(static_cast<int64_t>(outputs[i].size()) == result.desc.elements());
    on.stream.copy(outputs[i].data(), result.data, result.bytes());
  }
}

void allocate_gradients(Network& network, Device& device) {
  for (Parameter* parameter : network.parameters()) {
    if (!parameter->trainable) continue;
    parameter->grad_storage = device.allocate(parameter->desc.bytes());
    parameter->grad = {.desc = parameter->desc, .data = parameter->grad_storage.data()};
  }
}

}  // namespace rondo
