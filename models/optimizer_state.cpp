#include "models/optimizer_state.h"

#include <algorithm>
#include <functional>
#include <set>

#include "models/graph/graph.h"
#include "models/graph/weights.h"
#include "models/model.h"
#include "models/model_state.h"
#include "runtime/base/error.h"
#include "runtime/base/update_rules.h"
#include "runtime/kernels/backend.h"

namespace rondo {
namespace {

std::vector<const Weight*> trainable_weights(const Graph& graph) {
  std::vector<const Weight*> weights;
  for (const Weight* weight : graph.weights()) {
    if (weight->parameter.trainable) weights.push_back(weight);
  }
  return weights;
}

// Those on which the loss depends: by its outputs' calls, or by a penalty of their own.
std::set<const Weight*> weights_with_gradients(const ModelState& model) {
  const Graph& graph = model.shared->graph;
  std::set<const Weight*> found;
  std::set<const Node*> seen;
  const std::function<void(const Node&)> visit = [&](const Node& node) {
    if (!seen.insert(&node).second) return;
    if (const Graph* inner = node.layer->nested()) {
      found.insert(inner->weights().begin(), inner->weights().end());
    }
    for (const auto& weight : node.layer->weights()) found.insert(weight.get());
    for (const SymbolicTensor& input : node.inputs) visit(*input.node());
  };
  for (const Objective& objective : model.objective->outputs) {
    if (objective.has_loss) visit(*graph.outputs()[objective.output].node());
  }
  for (const Weight* weight : graph.weights()) {
    if (weight->regularizer) found.insert(weight);
  }
  return found;
}

// tf.keras has no state of weights without a gradient: here it is zero.
OptimizerState completed(const ModelState& model, OptimizerState state) {
  if (!model.objective) return state;
  const std::vector<const Weight*> weights = trainable_weights(model.shared->graph);
  const std::set<const Weight*> with_gradients = weights_with_gradients(model);
  const auto has_gradient = [&](const Weight* weight) { return with_gradients.contains(weight); };
  const size_t slots = slot_names(model.options.optimizer).size();
  const size_t cache = std::holds_alternative<Nadam>(model.options.optimizer) ? 1 : 0;
  const auto trained = static_cast<size_t>(std::count_if(weights.begin(), weights.end(), has_gradient));
  if (trained == weights.size() || state.weights.size() != cache + slots * trained) return state;
  std::vector<OptimizerWeight> all;
  auto next = state.weights.begin();
  for (size_t i = 0; i < cache; ++i) all.push_back(std::move(*next++));
  for (size_t s = 0; s < slots; ++s) {
    for (const Weight* weight : weights) {
      if (has_gradient(weight)) {
        all.push_back(std::move(*next++));
      } else {
        all.push_back({.name = weight->parameter.name,
                       .shape = weight->shape,
                       .values = std::vector<float>(static_cast<size_t>(weight->shape.elements()))});
      }
    }
  }
  state.weights = std::move(all);
  return state;
}

// Keras keeps it, we work it out from the iterations.
OptimizerWeight momentum_cache(const Nadam& nadam, int64_t iterations) {
  const NadamUpdate rule{.beta_1 = static_cast<float>(nadam.beta_1),
                         .schedule_decay = static_cast<float>(nadam.schedule_decay)};
  double product = 1.0;
  for (int64_t t = 1; t <= iterations; ++t) product *= update::nadam_momentum(rule, t);
  return {.name = "Nadam/momentum_cache:0", .shape = {}, .values = {static_cast<float>(product)}};
}

void check(const ModelState& model, const OptimizerState& state) {
  require(model.objective.has_value(),
          "model \"{}\" is not compiled: its optimizer's state has no place yet; call compile first",
          model.name);
  const OptimizerConfig& config = model.options.optimizer;
  const std::string_view name = optimizer_class(config);
  require(state.iterations >= 0, "the state of {} has {} iterations; there cannot be fewer than 0", name,
          state.iterations);
  if (state.weights.empty()) return;
  const std::vector<const Weight*> weights = trainable_weights(model.shared->graph);
  const std::vector<std::string> slots = slot_names(config);
  const size_t cache = std::holds_alternative<Nadam>(config) ? 1 : 0;
  const size_t wanted = cache + slots.size() * weights.size();
  require(
      state.weights.size() == wanted,
      "the state of {} for model \"{}\" has {} arrays ({} for each of {} trainable weights{}), {} were given",
      name, model.name, wanted, slots.size(), weights.size(), cache > 0 ? ", and the momentum cache" : "",
      state.weights.size());
  for (size_t i = 0; i < wanted; ++i) {
    const OptimizerWeight& given = state.weights[i];
    const Shape shape = i < cache ? Shape{} : weights[(i - cache) % weights.size()]->shape;
    require(static_cast<int64_t>(given.values.size()) == shape.elements() && given.shape == shape,
            "array {} of the optimizer's state ({}) must be {}, that of {}; it is {} with {} values", i,
            given.name, shape.text(),
            i < cache ? "the momentum cache" : weights[(i - cache) % weights.size()]->parameter.name,
            given.shape.text(), given.values.size());
  }
}

}  // namespace

OptimizerState ModelState::read_optimizer() const {
  if (!trainer) return pending_optimizer.value_or(OptimizerState{});
  trainer->synchronize();
  const OptimizerConfig& config = options.optimizer;
  const std::string_view of_class = optimizer_class(config);
  OptimizerState state{.iterations = trainer->steps_done(), .weights = {}};
  if (const auto* nadam = std::get_if<Nadam>(&config)) {
    state.weights.push_back(momentum_cache(*nadam, state.iterations));
  }
  const std::vector<const Weight*> weights = trainable_weights(shared->graph);
  const std::vector<std::string> slots = slot_names(config);
  const auto stream = home->backend->device().make_stream();
  for (size_t s = 0; s < slots.size(); ++s) {
    for (const Weight* weight : weights) {
      const Tensor slot = trainer->slots(weight->parameter)[s];
      state.weights.push_back({.name = fmt::format("{}/{}/{}:0", of_class, weight->parameter.name, slots[s]),
                               .shape = weight->shape,
                               .values = read_canonical(slot, *home->backend, *stream)});
    }
  }
  return state;
}

void ModelState::write_optimizer(const OptimizerState& state) {
  check(*this, state);  // weights may have been frozen since it was set
  trainer->synchronize();
  trainer->set_steps_done(state.iterations);
  if (state.weights.empty()) return;
  const std::vector<const Weight*> weights = trainable_weights(shared->graph);
  size_t next = std::holds_alternative<Nadam>(options.optimizer) ? 1 : 0;
  const size_t slots = slot_names(options.optimizer).size();
  const auto stream = home->backend->device().make_stream();
  for (size_t s = 0; s < slots; ++s) {
    for (const Weight* weight : weights) {
      write_canonical(state.weights[next++].values, trainer->slots(weight->parameter)[s], *home->backend,
                      *stream);
    }
  }
}

OptimizerState Model::optimizer_state() const {
  return state_->read_optimizer();
}

void Model::set_optimizer_state(const OptimizerState& given) {
  const OptimizerState state = completed(*state_, given);
  check(*state_, state);
  if (state_->trainer && state_->holds_weights()) {
    state_->write_optimizer(state);
  } else {
    state_->trainer.reset();
    state_->pending_optimizer = state;
  }
}

}  // namespace rondo
