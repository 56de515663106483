#include "models/graph/graph_network.h"

#include <algorithm>

#include "models/graph/graph.h"
#include "models/graph/graph_compiler.h"
#include "models/graph/plan.h"
#include "runtime/base/error.h"
#include "runtime/kernels/backend.h"

namespace rondo {

GraphNetwork::GraphNetwork(const Graph& graph, KernelBackend& backend, NetworkOptions options)
    : graph_(graph),
      backend_(backend),
      options_(std::move(options)),
      stream_(backend.device().make_stream()) {
  require(options_.nominal_rows > 0, "a network needs a positive nominal number of rows, got {}",
          options_.nominal_rows);
  if (options_.objective) {
    for (const NamedMetric& metric : options_.objective->metrics) metric_names_.push_back(metric.name);
  }
  sums_ = backend.device().allocate(static_cast<int64_t>((metric_names_.size() + 1) * sizeof(double)));
  // Training kernels choose the layouts of the weights, whatever the network is used for first.
  get_plan(options_.nominal_rows, Purpose::kTrain);
}

GraphNetwork::~GraphNetwork() = default;

const ParameterList& GraphNetwork::parameters() {
  return graph_.parameters();
}

Shape GraphNetwork::output_shape() const {
  return graph_.outputs().front().shape();
}

Plan& GraphNetwork::get_plan(int64_t rows, Purpose purpose) {
  std::unique_ptr<Plan>& slot = plans_[{rows, purpose}];
  if (!slot) {
    const Objective* objective = options_.objective ? &*options_.objective : nullptr;
    slot = compile_plan(graph_, backend_, *stream_,
                        {.rows = rows,
                         .purpose = purpose,
                         .objective = objective,
                         .sums = sums_.as<double>(),
                         .reuse_memory = options_.reuse_memory});
    reserve(*slot);
    slot->bind(arena_.data());
  }
  return *slot;
}

void GraphNetwork::reserve(const Plan& plan) {
  if (plan.scratch_bytes > scratch_.bytes()) scratch_ = backend_.device().allocate(plan.scratch_bytes);
  if (arena_ && plan.arena_bytes <= arena_.bytes()) return;
  RONDO_CHECK(pending_ == nullptr);
  arena_ = {};
  arena_ = backend_.device().allocate(std::max<int64_t>(plan.arena_bytes, 64));
  for (const auto& [key, other] : plans_) {
    if (other) other->bind(arena_.data());
  }
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

void GraphNetwork::forward(const Batch& batch, Mode mode, const StepState& state, std::span<double> sums) {
  require(options_.objective.has_value(), "the model has no loss: compile it before training or evaluation");
  Plan& plan = get_plan(batch.rows, mode == Mode::kTraining ? Purpose::kTrain : Purpose::kEvaluate);
  set_inputs(plan, batch);
  const TensorDesc& label = plan.values[static_cast<size_t>(plan.label)].tensor.desc;
  if (batch.label.desc.dtype != label.dtype || batch.label.desc.elements() != label.elements()) {
    raise<InvalidArgument>("the loss wants labels {} {}, the batch has {} {}", dtype_name(label.dtype),
                           label.shape.text(), dtype_name(batch.label.desc.dtype),
                           batch.label.desc.shape.text());
  }
  RONDO_CHECK(sums.size() == metric_names_.size() + 1);
  plan.set_external(plan.label, batch.label.data);
  state_ = state;
  plan.run_forward({.stream = *stream_, .scratch = scratch_.data(), .state = &state_});
  stream_->copy(sums.data(), sums_.data(), static_cast<int64_t>(sums.size_bytes()));
  stream_->synchronize();
  pending_ = mode == Mode::kTraining ? &plan : nullptr;
}

void GraphNetwork::backward(GradSink& sink) {
  RONDO_CHECK(pending_ != nullptr);
  const Plan& plan = *std::exchange(pending_, nullptr);
  plan.run_backward({.stream = *stream_, .scratch = scratch_.data(), .state = &state_}, sink);
}

void GraphNetwork::predict(const Batch& batch, std::span<float> out) {
  pending_ = nullptr;
  Plan& plan = get_plan(batch.rows, Purpose::kPredict);
  set_inputs(plan, batch);
  plan.run_forward({.stream = *stream_, .scratch = scratch_.data(), .state = &state_});
  const Tensor& result = plan.values[static_cast<size_t>(plan.output)].tensor;
  RONDO_CHECK(static_cast<int64_t>(out.size()) == result.desc.elements());
  stream_->copy(out.data(), result.data, result.bytes());
  stream_->synchronize();
}

void allocate_gradients(Network& network, Device& device) {
  for (Parameter* parameter : network.parameters()) {
    if (!parameter->trainable) continue;
    parameter->grad_storage = device.allocate(parameter->desc.bytes());
    parameter->grad = {.desc = parameter->desc, .data = parameter->grad_storage.data()};
  }
}

}  // namespace rondo
