#include "models/model_data.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "models/graph/graph.h"
#include "models/losses/losses.h"
#include "models/model_state.h"
#include "runtime/base/error.h"
#include "runtime/data/source.h"
#include "runtime/data/weighted.h"

namespace rondo {
namespace {

std::shared_ptr<const Source> borrow(const Source& source) {
  return {std::shared_ptr<const void>(), &source};
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// Where in a source's inputs or labels those of the model are: its names' where all fields are named, else in
// order. Nothing: there are others than so many.
std::optional<std::vector<size_t>> places_of(const std::vector<std::string>& names,
                                             const std::vector<SampleField>& fields, const char* what,
                                             const Source& data) {
  std::vector<size_t> places;
  if (std::all_of(fields.begin(), fields.end(), [](const auto& field) { return !field.name.empty(); })) {
    std::vector<std::string> there;
    for (const SampleField& field : fields) there.push_back(field.name);
    for (const std::string& name : names) {
      const auto found = std::find(there.begin(), there.end(), name);
      require(found != there.end(), "{} has no {} for \"{}\" of the model; it has {}", data.name(), what,
              name, list_of(there));
      places.push_back(static_cast<size_t>(found - there.begin()));
    }
    return places;
  }
  if (fields.size() != names.size()) return std::nullopt;
  for (size_t i = 0; i < names.size(); ++i) places.push_back(i);
  return places;
}

std::vector<size_t> inputs_of(const ModelState& state, const Source& data) {
  const std::vector<SymbolicTensor>& inputs = state.shared->graph.inputs();
  const std::vector<SampleField> fields = data.inputs();
  std::vector<std::string> names;
  for (const SymbolicTensor& input : inputs) names.push_back(input.node()->layer->name());
  const auto places = places_of(names, fields, "input", data);
  require(places.has_value(), "model \"{}\" takes {} inputs ({}), {} has {}", state.name, names.size(),
          list_of(names), data.name(), fields.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const Shape &wanted = inputs[i].shape(), &given = fields[(*places)[i]].shape;
    const std::string of = names.size() > 1 ? fmt::format(" for input \"{}\"", names[i]) : "";
    require(given == wanted, "model \"{}\" takes samples of shape {}{}, {} has {}", state.name, wanted.text(),
            of, data.name(), given.text());
  }
  return *places;
}

// Of the outputs that have an objective.
std::vector<size_t> labels_of(const ModelState& state, const Source& data) {
  const std::vector<std::string> names = state.shared->graph.output_names();
  const std::vector<SampleField> fields = data.labels();
  std::vector<std::string> wanted;
  for (const Objective& each : state.objective->outputs) wanted.push_back(names[each.output]);
  if (auto places = places_of(wanted, fields, "labels", data)) return *places;
  require(fields.size() == names.size(),
          "model \"{}\" takes {} labels ({}), {} has {}; give one for each output with a loss or metrics, or "
          "for each output",
          state.name, wanted.size(), list_of(wanted), data.name(), fields.size());
  std::vector<size_t> places;
  for (const Objective& each : state.objective->outputs) places.push_back(each.output);
  return places;
}

// The data with the inputs that the model takes and these labels, in the model's order.
std::shared_ptr<const Source> select(std::shared_ptr<const Source> data, std::vector<size_t> inputs,
                                     std::vector<size_t> labels) {
  const auto is_all = [](const std::vector<size_t>& places, size_t count) {
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] != i) return false;
    }
    return places.size() == count;
  };
  if (is_all(inputs, data->inputs().size()) && is_all(labels, data->labels().size())) return data;
  return std::make_shared<SelectedSource>(std::move(data), std::move(inputs), std::move(labels));
}

void check_labels(const ModelState& state, const Source& data) {
  const Graph& graph = state.shared->graph;
  const std::vector<std::string> names = graph.output_names();
  const std::vector<SampleField> labels = data.labels();
  for (size_t i = 0; i < labels.size(); ++i) {
    const Objective& objective = state.objective->outputs[i];
    const std::string of = names.size() > 1 ? fmt::format(", output \"{}\"", names[objective.output]) : "";
    check_labels(objective, graph.outputs()[objective.output].shape(), labels[i], data.name() + of);
  }
}

}  // namespace

std::shared_ptr<const Source> labelled(const ModelState& state, const Source& data,
                                       const SampleWeights& weights) {
  require(state.objective.has_value(), "model \"{}\" is not compiled: call compile before fit or evaluate",
          state.name);
  std::shared_ptr<const Source> out = select(borrow(data), inputs_of(state, data), labels_of(state, data));
  check_labels(state, *out);
  if (weights.empty()) return out;
  const auto said = of_outputs(weights.value(), state.shared->graph.output_names(), "sample_weight");
  std::vector<std::vector<float>> by_label;
  for (const Objective& each : state.objective->outputs) {
    by_label.push_back(said[each.output].value_or(std::vector<float>{}));
  }
  out = std::make_shared<WeightedSource>(std::move(out), std::move(by_label));
  check_labels(state, *out);
  return out;
}

std::shared_ptr<const Source> unlabelled(const ModelState& state, const Source& data) {
  std::vector<size_t> labels(data.labels().size());
  std::iota(labels.begin(), labels.end(), size_t{0});
  return select(borrow(data), inputs_of(state, data), std::move(labels));
}

int64_t classes_of(const Source& data) {
  if (data.classes() > 0 || data.label_dtype() == DType::kI32) return data.classes();
  const int64_t columns = data.label_shape().elements();
  return columns > 1 ? columns : 0;
}

}  // namespace rondo
