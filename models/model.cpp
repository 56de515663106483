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
        shared_(state->shared),
        state_(state) {}
  SharedGraph& shared() const { return *shared_; }
  std::shared_ptr<ModelState> state() const { return state_.lock(); }  // null once its handles are gone
  Config config() const override {
    const ConfigValue whole =
        structure_config(shared_->graph, name(), class_name() == std::string_view("Sequential"));
    return *whole.as<Config>()->find("config")->as<Config>();
  }

 private:
  std::shared_ptr<SharedGraph> shared_;
  std::weak_ptr<ModelState> state_;
};

// visit(layer) for every model nested in a model.
template <class Visit>
void each_nested(const SharedGraph& shared, const Visit& visit) {
  for (const auto& layer : shared.graph.layers()) {
    const auto* model = dynamic_cast<const ModelLayer*>(layer.get());
    if (model == nullptr) continue;
    visit(*model);
    each_nested(model->shared(), visit);
  }
}
// visit(shared) for a model and every model nested in it.
template <class Visit>
void each_model(SharedGraph& shared, const Visit& visit) {
  visit(shared);
  each_nested(shared, [&](const ModelLayer& model) { visit(model.shared()); });
}

}  // namespace

// The next trainer of these weights must not think that they are still in these buckets.
ModelState::~ModelState() {
  if (!shared) return;
  each_model(*shared, [&](SharedGraph& each) {
    if (each.trained_by == this) each.trained_by = nullptr;
  });
}

bool ModelState::holds_weights() const {
  const ParameterList& parameters = shared->graph.parameters();
  if (shared->trained_by != this || trained_at.size() != parameters.size()) return false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i]->value.data != trained_at[i]) return false;
  }
  return true;
}

namespace {

// Of one of `devices` that divide the cores of the process.
int threads_of_group(int devices) {
  return std::max(1, static_cast<int>(affinity_cores().cores.size()) / devices);
}

}  // namespace

// A model that was not given a world trains alone, on all cores of the process.
void ModelState::bind() {
  if (backend == nullptr) {
    // The weights of a model that is called as a layer may have been put somewhere already.
    each_nested(*shared, [&](const ModelLayer& model) {
      const std::shared_ptr<ModelState> inner = model.state();
      if (!inner || inner->backend == nullptr || backend != nullptr) return;
      own_device = inner->own_device;
      own_backend = inner->own_backend;
      backend = inner->backend;
      own_others = inner->own_others;
      others = inner->others;
    });
  }
  const int devices = shared->graph.devices();
  if (backend == nullptr) {
    own_device = make_cpu_device(threads_of_group(devices));
    own_backend = make_cpu_backend(*own_device);
    backend = own_backend.get();
  }
  while (own_device && static_cast<int>(others.size()) + 1 < devices) {
    CoreGroup& group = own_others.emplace_back();
    group.device = make_cpu_device(threads_of_group(devices));
    group.backend = make_cpu_backend(*group.device);
    others.push_back(group.backend.get());
  }
  if (comm == nullptr) {
    own_comm = make_self_communicator(backend->device());
    comm = own_comm.get();
  }
}

void ModelState::bind_nested() {
  each_nested(*shared, [&](const ModelLayer& model) {
    const std::shared_ptr<ModelState> inner = model.state();
    if (!inner || inner->backend != nullptr) return;
    inner->own_device = own_device;
    inner->own_backend = own_backend;
    inner->backend = backend;
    inner->own_others = own_others;
    inner->others = others;
  });
}

GraphNetwork& ModelState::get_network(int64_t rows) {
  if (!network) {
    bind();
    bind_nested();
    network = std::make_unique<GraphNetwork>(
        shared->graph, *backend,
        NetworkOptions{
            .nominal_rows = rows, .objective = objective, .precision = options.precision, .others = others});
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
    trainer = std::make_unique<Trainer>(*comm, *backend, net,
                                        TrainerOptions{.optimizer = options.optimizer,
                                                       .buckets = options.buckets,
                                                       .precision = options.precision,
                                                       .loss_scaling = options.loss_scaling});
    each_model(*shared, [&](SharedGraph& each) { each.trained_by = this; });
    trained_at.clear();
    for (const Parameter* parameter : shared->graph.parameters()) trained_at.push_back(parameter->value.data);
    if (pending_optimizer) write_optimizer(*pending_optimizer);
    pending_optimizer.reset();
  }
  return *trainer;
}

void ModelState::quiesce() const {
  const ModelState* trained_by = shared->trained_by;
  if (trained_by != nullptr && trained_by->trainer) trained_by->trainer->synchronize();
}

int64_t ModelState::nominal_rows(int64_t batch_size) {
  bind();
  require(batch_size > 0, "batch_size must be at least 1, got {}", batch_size);
  return (batch_size + comm->size() - 1) / comm->size();
}

namespace {

void check_inputs(const ModelState& state, const Source& data) {
  const Graph& graph = state.shared->graph;
  if (graph.inputs().size() != 1 || graph.outputs().size() != 1) {
    raise<Unavailable>(
        "model \"{}\" has {} inputs and {} outputs; fit, evaluate and predict take models with one of each",
        state.name, graph.inputs().size(), graph.outputs().size());
  }
  const Shape& wanted = graph.inputs().front().shape();
  require(data.input_shape() == wanted, "model \"{}\" takes samples of shape {}, {} has {}", state.name,
          wanted.text(), data.name(), data.input_shape().text());
}

void check_data(const ModelState& state, const Source& data) {
  require(state.objective.has_value(), "model \"{}\" is not compiled: call compile before fit or evaluate",
          state.name);
  check_inputs(state, data);
  check_labels(*state.objective, state.shared->graph.outputs().front().shape(), data.label_shape(),
               data.label_dtype(), data.name());
}

// How many there are, 0 where single numbers are labels and nobody says.
int64_t classes_of(const Source& data) {
  if (data.classes() > 0 || data.label_dtype() == DType::kI32) return data.classes();
  const int64_t columns = data.label_shape().elements();
  return columns > 1 ? columns : 0;
}

std::shared_ptr<const Source> borrow(const Source& source) {
  return {std::shared_ptr<const void>(), &source};
}

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
Shape Model::input_shape() const {
  return graph().inputs().front().shape();
}
Shape Model::output_shape() const {
  return graph().outputs().front().shape();
}

void Model::compile(const CompileOptions& options) {
  if (graph().outputs().size() != 1) {
    raise<Unavailable>("model \"{}\" has {} outputs; models with one output can be compiled", name(),
                       graph().outputs().size());
  }
  Objective objective = make_objective(options.loss, options.metrics, output_shape());
  if (state_->backend != nullptr) check_precision(*state_->backend, options.precision);
  state_->trainer.reset();
  state_->pending_optimizer.reset();
  state_->network.reset();
  state_->options = options;
  state_->objective = std::move(objective);
}

const CompileOptions* Model::compile_options() const {
  return state_->objective ? &state_->options : nullptr;
}

History Model::fit(const Source& data, const ModelFitOptions& options) {
  check_data(*state_, data);
  require(options.validation_split >= 0.0 && options.validation_split < 1.0,
          "validation_split must be in [0, 1), got {}", options.validation_split);
  std::shared_ptr<const Source> train = borrow(data);
  if (!options.sample_weight.empty()) {
    train = std::make_shared<WeightedSource>(std::move(train), options.sample_weight);
  }
  std::shared_ptr<const Source> validation;
  if (options.validation_data != nullptr) {
    check_data(*state_, *options.validation_data);
    validation = borrow(*options.validation_data);
  } else if (options.validation_split > 0.0) {
    TrainValidation parts = split_validation(train, options.validation_split);
    train = std::move(parts.train);
    validation = std::move(parts.validation);
  }
  if (!options.class_weight.empty()) {
    const int64_t classes = classes_of(*train);
    train = std::make_shared<WeightedSource>(std::move(train), options.class_weight, classes);
  }
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

Logs Model::evaluate(const Source& data, int64_t batch_size) {
  check_data(*state_, data);
  const int64_t rows = state_->nominal_rows(batch_size);
  state_->quiesce();
  // Alone there is nobody to share with, and the weights can stay where another model trains them.
  if (state_->comm->size() == 1) return evaluate_locally(state_->get_network(rows), data, batch_size);
  return state_->get_trainer(rows).evaluate(data, batch_size);
}

std::vector<float> Model::predict(const Source& data, int64_t batch_size) {
  check_inputs(*state_, data);
  const int64_t rows = state_->nominal_rows(batch_size);
  state_->quiesce();
  if (state_->comm->size() == 1) return predict_locally(state_->get_network(rows), data, batch_size);
  return state_->get_trainer(rows).predict(data, batch_size);
}

std::vector<std::vector<float>> Model::get_weights() const {
  state_->quiesce();
  std::vector<std::vector<float>> values;
  for (Weight* weight : graph().weights()) {
    if (weight->on_device()) {
      const auto stream = state_->backend->device().make_stream();
      values.push_back(read_canonical(weight->parameter.value, *state_->backend, *stream));
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
      const auto stream = state_->backend->device().make_stream();
      write_canonical(values[i], weights[i]->parameter.value, *state_->backend, *stream);
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
  require(state_->trainer != nullptr && state_->shared->trained_by == state_.get(),
          "model \"{}\" has no optimizer yet: call compile and fit first", name());
  return state_->trainer->optimizer();
}

}  // namespace rondo
