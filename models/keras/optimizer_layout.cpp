#include "models/keras/optimizer_layout.h"

#include <fmt/core.h>

#include <utility>

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

// m of a, v of a, m of b, v of b to m of a, m of b, v of a, v of b.
void sort_by_slot(std::vector<OptimizerWeight>& weights, size_t slots, const std::string& where) {
  if (slots < 2) return;
  if (slots > 2 || weights.size() % slots != 0) {
    raise<FileError>("{}: is the state of an optimizer with settings that are not supported", where);
  }
  std::vector<OptimizerWeight> sorted;
  for (size_t slot = 0; slot < slots; ++slot) {
    for (size_t i = slot; i < weights.size(); i += slots) sorted.push_back(std::move(weights[i]));
  }
  weights = std::move(sorted);
}

}  // namespace

void put_optimizer(Group& group, const OptimizerConfig& config, const OptimizerState& state) {
  std::vector<std::string> names{fmt::format("{}/iter:0", optimizer_class(config))};
  group.put_array(names[0], {.shape = {}, .values = std::vector<int64_t>{state.iterations}});
  for (const OptimizerWeight& weight : state.weights) {
    names.push_back(weight.name);
    group.put_array(weight.name, {.shape = {weight.shape.extents().begin(), weight.shape.extents().end()},
                                  .values = weight.values});
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
    } else if (name.find("learning_rate") == std::string::npos) {
      state.weights.push_back(weight_of(name, *array, place));
    }
    first = false;
  }
  if (rewritten) sort_by_slot(state.weights, slot_names(config).size(), where);
  return state;
}

}  // namespace rondo::keras
