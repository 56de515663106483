#include "models/model.h"

#include <algorithm>

#include "models/graph/config.h"
#include "models/graph/graph.h"
#include "models/graph/graph_network.h"
#include "models/graph/nested.h"
#include "models/graph/precision.h"
#include "models/graph/weights.h"
#include "models/layers/structure.h"
#include "models/local_evaluation.h"
#include "models/losses/losses.h"
#include "models/model_data.h"
#include "models/model_state.h"
#include "models/summary.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/data/source.h"
#include "runtime/data/weighted.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/cores.h"

namespace rondo {

ModelState::ModelState() = default;

namespace {

// A model that is called as a layer.
class ModelLayer final : public NestedModel {
 public:
  explicit ModelLayer(const std::shared_ptr<ModelState>& state)
      : NestedModel(state->name, state->sequential, {state->shared, &state->shared->graph}),
        shared_(state->shared) {}
  Config config() const override {
    const ConfigValue whole =
        structure_config(shared_->graph, name(), class_name() == std::string_view("Sequential"));
    return *whole.as<Config>()->find("config")->as<Config>();
  }

 private:
  std::shared_ptr<SharedGraph> shared_;
};

}  // namespace

// The next trainer of these weights must not think that they are still in these buckets.
ModelState::~ModelState() {
  if (!shared) return;
  for (Weight* weight : shared->graph.weights()) {
    if (weight->trained_by == this) weight->trained_by = nullptr;
  }
}

bool ModelState::holds_weights() const {
  const ParameterList& parameters = shared->graph.parameters();
  if (trained_at.size() != parameters.size()) return false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i]->value.data != trained_at[i]) return false;
  }
  return true;
}

ModelHome::ModelHome(KernelBackend& first, std::span<KernelBackend* const> more)
    : backend(&first), others(more.begin(), more.end()) {}

ModelHome::ModelHome(int devices) {
  provide(devices);
}

ModelHome::~ModelHome() = default;

void ModelHome::provide(int devices) {
  if (backend != nullptr && own.empty()) return;
  const int threads = std::max(1, static_cast<int>(affinity_cores().cores.size()) / devices);
  while (static_cast<int>(own.size()) < devices) {
    CoreGroup& group = own.emplace_back();
    group.device = make_cpu_device(threads);
    group.backend = make_cpu_backend(*group.device);
    if (backend == nullptr) {
      backend = group.backend.get();
    } else {
      others.push_back(group.backend.get());
    }
  }
}

bool can_share(const KernelBackend& one, const KernelBackend& other) {
  const Device &here = one.device(), &there = other.device();
  return &here == &there || (here.host_accessible() && there.host_accessible());
}

namespace {

void check_same(const ModelState& state, const Weight& weight) {
  const KernelBackend &one = *state.home->backend, &other = *weight.home->backend;
  if (can_share(one, other)) return;
  raise<InvalidArgument>(
      "model \"{}\" has weights on {} and on {} (\"{}\"): models that share weights are put on one "
      "device by the first of them that is used; make them parallel in one world before that",
      state.name, one.device().name(), other.device().name(), weight.parameter.name);
}

}  // namespace

void ModelState::bind(std::shared_ptr<ModelHome> wanted) {
  const std::vector<Weight*>& weights = shared->graph.weights();
  for (const Weight* weight : weights) {
    if (!home) home = weight->home;
  }
  const int devices = shared->graph.devices();
  if (!home) home = wanted ? std::move(wanted) : std::make_shared<ModelHome>(devices);
  home->provide(devices);
  for (Weight* weight : weights) {
    if (!weight->home) weight->home = home;
    check_same(*this, *weight);
  }
}

GraphNetwork& ModelState::get_network(int64_t rows) {
  if (!network) {
    bind();
    network = std::make_unique<GraphNetwork>(shared->graph, *home->backend,
                                             NetworkOptions{.nominal_rows = rows,
                                                            .objective = objective,
                                                            .precision = options.precision,
                                                            .others = home->others});
  }
  return *network;
}

Trainer& ModelState::get_trainer(int64_t rows) {
  GraphNetwork& net = get_network(rows);
  // A trainer keeps the weights in its buckets. If another model of the same weights has trained since, they
  // have moved, and so must we.
  if (trainer && !holds_weights()) {
    try {
      pending_optimizer = read_optimizer();
    } catch (const InvalidArgument&) {
      pending_optimizer.reset();  // other weights are trained now: it begins anew
    }
    trainer.reset();
  }
  if (!trainer) {
    quiesce();
    trainer = std::make_unique<Trainer>(world(), *home->backend, net,
                                        TrainerOptions{.optimizer = options.optimizer,
                                                       .buckets = options.buckets,
                                                       .precision = options.precision,
                                                       .loss_scaling = options.loss_scaling});
    for (Weight* weight : shared->graph.weights()) weight->trained_by = this;
    trained_at.clear();
    for (const Parameter* parameter : shared->graph.parameters()) trained_at.push_back(parameter->value.data);
    if (pending_optimizer) write_optimizer(*pending_optimizer);
    pending_optimizer.reset();
  }
  return *trainer;
}

void ModelState::quiesce() const {
  const ModelState* last = nullptr;
  for (const Weight* weight : shared->graph.weights()) {
    if (weight->trained_by == nullptr || weight->trained_by == last) continue;
    last = weight->trained_by;
    if (last->trainer) last->trainer->synchronize();
  }
}

std::vector<bool> ModelState::trainable() const {
  std::vector<bool> trainable;
  for (const Parameter* parameter : shared->graph.parameters()) trainable.push_back(parameter->trainable);
  return trainable;
}

// A model that was not given a world trains alone.
Communicator& ModelState::world() {
  if (comm == nullptr) {
    bind();
    own_comm = make_self_communicator(home->backend->device());
    comm = own_comm.get();
  }
  return *comm;
}

int64_t ModelState::nominal_rows(int64_t batch_size) {
  require(batch_size > 0, "batch_size must be at least 1, got {}", batch_size);
  return (batch_size + world().size() - 1) / world().size();
}

namespace {

std::vector<SymbolicTensor> chain(std::span<const LayerHandle> layers) {
  require(!layers.empty() && layers.front().layer()->class_name() == "InputLayer",
          "a Sequential must begin with layers::Input");
  const auto& input = static_cast<const InputLayer&>(*layers.front().layer());
  SymbolicTensor first(std::make_shared<const Node>(Node{layers.front().layer(), {}, input.shape()}));
  SymbolicTensor last = first;
  for (size_t i = 1; i < layers.size(); ++i) {
    try {
      last = layers[i](last);
    } catch (const InvalidArgument& error) {
      raise<InvalidArgument>("layer {} of the Sequential: {}", i, error.what());
    }
  }
  return {first, last};
}

}  // namespace

Model::Model(std::vector<SymbolicTensor> inputs, std::vector<SymbolicTensor> outputs,
             const ModelOptions& options)
    : state_(std::make_shared<ModelState>()) {
  state_->name = options.name;
  state_->shared = std::make_shared<SharedGraph>(Graph(std::move(inputs), std::move(outputs), options.seed));
}

Sequential::Sequential(std::initializer_list<LayerHandle> layers, const ModelOptions& options)
    : Sequential(std::span<const LayerHandle>(layers.begin(), layers.size()), options) {}

Sequential::Sequential(std::span<const LayerHandle> layers, const ModelOptions& options)
    : Sequential(chain(layers), options) {}

Sequential::Sequential(const std::vector<SymbolicTensor>& ends, const ModelOptions& options)
    : Model({ends.front()}, {ends.back()}, options) {
  state().sequential = true;
}

LayerHandle Model::as_layer() const {
  if (!state_->as_layer) state_->as_layer = std::make_shared<ModelLayer>(state_);
  return LayerHandle(state_->as_layer);
}
SymbolicTensor Model::operator()(const SymbolicTensor& input) const {
  return as_layer()(input);
}
SymbolicTensor Model::operator()(const std::vector<SymbolicTensor>& inputs) const {
  return as_layer()(inputs);
}

const std::string& Model::name() const {
  return state_->name;
}
const Graph& Model::graph() const {
  return state_->shared->graph;
}
Layer& Model::get_layer(std::string_view name) const {
  std::string names;
  for (const auto& layer : graph().layers()) {
    if (layer->name() == name) return *layer;
    names += (names.empty() ? "" : ", ") + layer->name();
  }
  raise<InvalidArgument>("model \"{}\" has no layer \"{}\"; it has {}", this->name(), name, names);
}

SymbolicTensor Model::layer_output(std::string_view name) const {
  const Layer& layer = get_layer(name);
  SymbolicTensor output;
  for (const auto& node : graph().nodes()) {
    if (node->layer.get() != &layer) continue;
    require(!output, "{} is called several times in model \"{}\": which output is meant is not clear",
            layer.title(), this->name());
    output = SymbolicTensor(node);
  }
  return output;
}

void Model::set_trainable(bool trainable) {
  for (const auto& layer : graph().layers()) layer->set_trainable(trainable);
}

Shape Model::input_shape() const {
  return graph().inputs().front().shape();
}
Shape Model::output_shape() const {
  return graph().outputs().front().shape();
}

void Model::compile(const CompileOptions& options) {
  std::vector<Shape> outputs;
  for (const SymbolicTensor& output : graph().outputs()) outputs.push_back(output.shape());
  Objectives objective = make_objectives({.loss = options.loss,
                                          .loss_weights = options.loss_weights,
                                          .metrics = options.metrics,
                                          .weighted_metrics = options.weighted_metrics},
                                         outputs, graph().output_names());
  if (state_->home) check_precision(*state_->home->backend, options.precision);
  state_->trainer.reset();
  state_->pending_optimizer.reset();
  state_->network.reset();
  state_->options = options;
  state_->objective = std::move(objective);
  state_->compiled_trainable = state_->trainable();
}

const CompileOptions* Model::compile_options() const {
  return state_->objective ? &state_->options : nullptr;
}

History Model::fit(const Source& data, const ModelFitOptions& options) {
  std::shared_ptr<const Source> train = labelled(*state_, data, options.sample_weight);
  require(options.validation_split >= 0.0 && options.validation_split < 1.0,
          "validation_split must be in [0, 1), got {}", options.validation_split);
  std::shared_ptr<const Source> validation;
  if (options.validation_data != nullptr) {
    validation = labelled(*state_, *options.validation_data, {});
  } else if (options.validation_split > 0.0) {
    TrainValidation parts = split_validation(train, options.validation_split);
    train = std::move(parts.train);
    validation = std::move(parts.validation);
  }
  if (!options.class_weight.empty()) {
    require(graph().outputs().size() == 1,
            "class_weight is for models with one output; model \"{}\" has {}: give sample_weight", name(),
            graph().outputs().size());
    const int64_t classes = classes_of(*train);
    train = std::make_shared<WeightedSource>(std::move(train), options.class_weight, classes);
  }
  require(state_->trainable() == state_->compiled_trainable,
          "model \"{}\" was compiled with other layers frozen than now: call compile again", name());
  int64_t batch_size = options.batch_size;
  if (batch_size == 0) {
    const int64_t steps = options.steps_per_epoch;
    batch_size = steps > 0 ? (train->size() + steps - 1) / steps : 32;
  }
  Trainer& trainer = state_->get_trainer(state_->nominal_rows(batch_size));
  return trainer.fit(*train, {.batch_size = batch_size,
                              .epochs = options.epochs,
                              .initial_epoch = options.initial_epoch,
                              .steps_per_epoch = options.steps_per_epoch,
                              .shuffle = options.shuffle,
                              .seed = options.seed,
                              .validation = validation.get(),
                              .validation_batch_size = options.validation_batch_size,
                              .validation_freq = options.validation_freq,
                              .validation_epochs = options.validation_epochs,
                              .loader_threads = options.loader_threads,
                              .replay_steps = options.replay_steps,
                              .callbacks = options.callbacks});
}

Logs Model::evaluate(const Source& data, int64_t batch_size, const SampleWeights& sample_weight) {
  const std::shared_ptr<const Source> samples = labelled(*state_, data, sample_weight);
  const int64_t rows = state_->nominal_rows(batch_size);
  state_->quiesce();
  // Alone there is nobody to share with, and the weights can stay where another model trains them.
  if (state_->world().size() == 1) return evaluate_locally(state_->get_network(rows), *samples, batch_size);
  return state_->get_trainer(rows).evaluate(*samples, batch_size);
}

std::vector<float> Model::predict(const Source& data, int64_t batch_size) {
  require(graph().outputs().size() == 1,
          "model \"{}\" has {} outputs; predict_outputs gives an array for each", name(),
          graph().outputs().size());
  return std::move(predict_outputs(data, batch_size).front());
}

std::vector<std::vector<float>> Model::predict_outputs(const Source& data, int64_t batch_size) {
  const std::shared_ptr<const Source> samples = unlabelled(*state_, data);
  const int64_t rows = state_->nominal_rows(batch_size);
  state_->quiesce();
  if (state_->world().size() == 1) return predict_locally(state_->get_network(rows), *samples, batch_size);
  return state_->get_trainer(rows).predict(*samples, batch_size);
}

std::vector<std::vector<float>> Model::get_weights() const {
  state_->quiesce();
  std::vector<std::vector<float>> values;
  for (Weight* weight : graph().weights()) {
    if (weight->on_device()) {
      KernelBackend& backend = *weight->home->backend;
      const auto stream = backend.device().make_stream();
      values.push_back(read_canonical(weight->parameter.value, backend, *stream));
    } else {
      values.push_back(weight->values());
    }
  }
  return values;
}

void Model::set_weights(const std::vector<std::vector<float>>& values) {
  const auto& weights = graph().weights();
  require(values.size() == weights.size(), "model \"{}\" has {} weights, {} were given", name(),
          weights.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Shape& shape = weights[i]->shape;
    require(static_cast<int64_t>(values[i].size()) == shape.elements(),
            "weight {} ({}) has shape {}, that is {} values; {} were given", i, weights[i]->parameter.name,
            shape.text(), shape.elements(), values[i].size());
  }
  state_->quiesce();
  for (size_t i = 0; i < values.size(); ++i) {
    if (weights[i]->on_device()) {
      KernelBackend& backend = *weights[i]->home->backend;
      const auto stream = backend.device().make_stream();
      write_canonical(values[i], weights[i]->parameter.value, backend, *stream);
    } else {
      weights[i]->host = values[i];
    }
  }
}

int64_t Model::count_params() const {
  return graph().count_params();
}

std::string Model::summary() const {
  return summarize(graph(), name(), state_->sequential);
}

GraphNetwork& Model::network(int64_t rows) {
  return state_->get_network(rows);
}

Optimizer& Model::optimizer() {
  require(state_->trainer != nullptr && state_->holds_weights(),
          "model \"{}\" has no optimizer yet: call compile and fit first", name());
  return state_->trainer->optimizer();
}

}  // namespace rondo
