#include "models/keras/optimizer_layout.h"

#include <fmt/core.h>

#include <utility>

#include "models/graph/config.h"
#include "models/graph/graph.h"
#include "models/keras/optimizer_config.h"
#include "models/keras/weight_layout.h"
#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

int64_t iterations_of(const StoredArray& array, const std::string& where) {
  const auto* whole = std::get_if<std::vector<int64_t>>(&array.values);
  if (whole == nullptr || whole->size() != 1 || whole->front() < 0) {
    raise<FileError>("{}: is not a number of updates", where);
  }
  return whole->front();
}

OptimizerWeight weight_of(const std::string& name, const StoredArray& array, const std::string& where) {
  const auto* values = std::get_if<std::vector<float>>(&array.values);
  if (values == nullptr || array.shape.size() > static_cast<size_t>(Shape::kMaxRank)) {
    raise<FileError>("{}: is not the state of a weight", where);
  }
  return {.name = name, .shape = Shape(array.shape), .values = *values};
}

// How many slots Keras from 2.11 on lists together for each weight; those behind them follow one by one.
size_t slots_together(const OptimizerConfig& config) {
  const bool one_by_one = std::holds_alternative<RMSprop>(config) || slot_names(config).size() < 2;
  return one_by_one ? 1 : 2;
}

// use(ours, theirs) with the place of each array: ours are m of a, m of b, v of a, v of b; theirs, where two
// stand together, m of a, v of a, m of b, v of b.
template <class Use>
void each_place(const OptimizerConfig& config, size_t count, const Use& use) {
  const size_t slots = slot_names(config).size();
  const size_t together = slots_together(config);
  const size_t weights = count / slots;
  for (size_t slot = 0; slot < slots; ++slot) {
    for (size_t i = 0; i < weights; ++i) {
      use(slot * weights + i, slot < together ? i * together + slot : slot * weights + i);
    }
  }
}

OptimizerWeight nadam_cache() {
  return {.name = "Nadam/momentum_cache:0", .shape = {}, .values = {1.0f}};
}

// The order of Keras 2.11 and later to ours.
void sort_by_slot(std::vector<OptimizerWeight>& weights, const OptimizerConfig& config,
                  const std::string& where) {
  const size_t slots = slot_names(config).size();
  if (slots == 0) {  // SGD's momenta, which are zeros without one
    weights.clear();
    return;
  }
  if (weights.size() % slots != 0) {
    raise<FileError>("{}: has {} arrays, which are not {} for each weight", where, weights.size(), slots);
  }
  std::vector<OptimizerWeight> sorted(weights.size());
  each_place(config, weights.size(),
             [&](size_t ours, size_t theirs) { sorted[ours] = std::move(weights[theirs]); });
  // We work it out ourselves, but it has its place.
  if (std::holds_alternative<Nadam>(config)) sorted.insert(sorted.begin(), nadam_cache());
  weights = std::move(sorted);
}

// Whether the rate is an object in archives: Keras 3 then has no variable for it.
bool has_schedule(const OptimizerConfig& config) {
  const ConfigValue object = optimizer_config(config, OptimizerForm::kArchive);
  const Config& settings = *object.as<Config>()->find("config")->as<Config>();
  return settings.find("learning_rate")->as<double>() == nullptr;
}

StoredArray stored(const OptimizerWeight& weight) {
  return {.shape = {weight.shape.extents().begin(), weight.shape.extents().end()}, .values = weight.values};
}

}  // namespace

void put_optimizer(Group& group, const OptimizerConfig& config, const OptimizerState& state) {
  const bool together = has_new_form(config);
  const std::string_view of_class = optimizer_class(config);
  std::vector<std::string> names{together ? "iteration:0" : fmt::format("{}/iter:0", of_class)};
  group.put_array(names[0], {.shape = {}, .values = std::vector<int64_t>{state.iterations}});
  std::vector<const OptimizerWeight*> weights;
  for (const OptimizerWeight& weight : state.weights) weights.push_back(&weight);
  if (together && !weights.empty()) {
    const size_t before = std::holds_alternative<Nadam>(config) ? 1 : 0;
    std::vector<const OptimizerWeight*> sorted(weights.size() - before);
    each_place(config, sorted.size(),
               [&](size_t ours, size_t theirs) { sorted[theirs] = weights[before + ours]; });
    weights = std::move(sorted);
  }
  for (const OptimizerWeight* weight : weights) {
    names.push_back(weight->name);
    group.put_array(weight->name, stored(*weight));
  }
  put_list(group, "weight_names", names);
}

OptimizerState take_optimizer(const Group& group, const OptimizerConfig& config, const std::string& where) {
  OptimizerState state;
  bool first = true;
  bool rewritten = false;
  for (const std::string& name : take_list(group, "weight_names", where)) {
    const std::string place = where + "/" + name;
    const StoredArray* array = group.find_array(name);
    if (array == nullptr) raise<FileError>("{}: is missing, but listed in weight_names", place);
    if (first) {
      state.iterations = iterations_of(*array, place);
      rewritten = name.find("iteration") != std::string::npos;
    } else if (!rewritten || !array->shape.empty()) {  // a learning rate, Nadam's product
      state.weights.push_back(weight_of(name, *array, place));
    }
    first = false;
  }
  if (rewritten && !state.weights.empty()) sort_by_slot(state.weights, config, where);
  return state;
}

void put_archive_optimizer(Group& root, const OptimizerConfig& config, const OptimizerState& state,
                           const Graph& graph, KerasDialect dialect) {
  const bool keras3 = dialect == KerasDialect::kKeras3;
  std::vector<StoredArray> arrays;
  arrays.push_back({.shape = {}, .values = std::vector<int64_t>{state.iterations}});
  if (keras3 && !has_schedule(config)) {
    const double rate = std::visit([](const auto& settings) { return settings.learning_rate; }, config);
    arrays.push_back({.shape = {}, .values = std::vector<float>{static_cast<float>(rate)}});
  }
  const size_t before = std::holds_alternative<Nadam>(config) && !state.weights.empty() ? 1 : 0;
  const size_t first = arrays.size();
  const size_t count = state.weights.size() - before;
  arrays.resize(first + count);
  if (count > 0) {
    each_place(config, count, [&](size_t ours, size_t theirs) {
      arrays[first + theirs] = stored(state.weights[before + ours]);
    });
  }
  if (before > 0 && keras3) arrays.push_back(stored(state.weights.front()));
  if (const auto* sgd = std::get_if<SGD>(&config); sgd != nullptr && sgd->momentum == 0.0 && !keras3) {
    for (const Weight* weight : graph.weights()) {
      if (!weight->parameter.trainable) continue;
      arrays.push_back({.shape = {weight->shape.extents().begin(), weight->shape.extents().end()},
                        .values = std::vector<float>(static_cast<size_t>(weight->shape.elements()), 0.0f)});
    }
  }
  Group& group = root.make_group("optimizer/vars");
  for (size_t i = 0; i < arrays.size(); ++i) group.put_array(std::to_string(i), std::move(arrays[i]));
}

OptimizerState take_archive_optimizer(const Group& group, const OptimizerConfig& config,
                                      const std::string& where) {
  OptimizerState state;
  for (size_t i = 0; i < group.arrays.size(); ++i) {
    const std::string name = std::to_string(i);
    const std::string place = where + "/" + name;
    const StoredArray* array = group.find_array(name);
    if (array == nullptr) raise<FileError>("{}: is missing", place);
    if (i == 0) {
      state.iterations = iterations_of(*array, place);
    } else if (!array->shape.empty()) {  // the learning rate and Nadam's product are in the configuration
      state.weights.push_back(weight_of(name, *array, place));
    }
  }
  if (!state.weights.empty()) sort_by_slot(state.weights, config, where);
  return state;
}

}  // namespace rondo::keras
