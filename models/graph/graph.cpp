#include "models/graph/graph.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <unordered_set>

#include "runtime/base/error.h"

namespace rondo {
namespace {

// Keras' default name of a class: "MaxPooling2D" to "max_pooling2d".
std::string snake_case(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto is = [&](size_t at, int (*test)(int)) {
      return at < name.size() && test(static_cast<unsigned char>(name[at])) != 0;
    };
    const bool starts_word = is(i, std::isupper) && i > 0 &&
                             (is(i - 1, std::islower) || is(i + 1, std::islower) || is(i + 1, std::isdigit));
    if (starts_word) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

}  // namespace

Graph::Graph(std::vector<SymbolicTensor> inputs, std::vector<SymbolicTensor> outputs, uint64_t seed)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  require(!inputs_.empty(), "a model needs at least one input");
  require(!outputs_.empty(), "a model needs at least one output");
  find_nodes();
  order_layers();
  name_layers();
  collect_weights(seed);
}

// Depth first from the outputs; a call is listed after everything it reads.
void Graph::find_nodes() {
  std::unordered_set<const Node*> listed;
  std::unordered_set<const Node*> seen;
  for (const SymbolicTensor& input : inputs_) {
    require(input && input.node()->inputs.empty(), "every input of a model must come from layers::Input");
    require(listed.insert(input.node().get()).second, "{} is listed twice among the model's inputs",
            input.node()->layer->title());
  }
  std::unordered_set<const Layer*> met;
  const std::function<void(const std::shared_ptr<const Node>&)> visit =
      [&](const std::shared_ptr<const Node>& node) {
        if (!seen.insert(node.get()).second) return;
        if (met.insert(node->layer.get()).second) first_met_.push_back(node->layer.get());
        require(!node->inputs.empty() || listed.contains(node.get()),
                "the model's outputs depend on {} of shape {}, which is not listed among its inputs",
                node->layer->title(), node->output.text());
        for (const SymbolicTensor& input : node->inputs) visit(input.node());
        for (const SymbolicTensor& input : node->inputs) consumers_[input.node().get()].push_back(node.get());
        nodes_.push_back(node);
      };
  for (const SymbolicTensor& output : outputs_) {
    require(static_cast<bool>(output), "an output of the model is an empty tensor");
    visit(output.node());
  }
  for (const SymbolicTensor& input : inputs_) {
    require(seen.contains(input.node().get()), "no output of the model depends on its input of shape {}",
            input.shape().text());
  }
}

// A layer's depth is its longest way to an output. Keras lists layers by falling depth, ties as a walk from
// the outputs meets them.
void Graph::order_layers() {
  std::unordered_map<const Node*, int> node_depth;
  std::unordered_map<const Layer*, int> layer_depth;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    int& known = layer_depth[(*node)->layer.get()];
    const int depth = std::max(node_depth[node->get()], known);
    known = depth;
    for (const SymbolicTensor& input : (*node)->inputs) {
      int& below = node_depth[input.node().get()];
      below = std::max(below, depth + 1);
    }
  }
  for (const Layer* layer : first_met_) {
    const auto same = [&](const auto& node) { return node->layer.get() == layer; };
    layers_.push_back((*std::find_if(nodes_.begin(), nodes_.end(), same))->layer);
  }
  std::stable_sort(layers_.begin(), layers_.end(),
                   [&](const auto& a, const auto& b) { return layer_depth[a.get()] > layer_depth[b.get()]; });
}

std::vector<std::string> Graph::output_names() const {
  std::vector<std::string> names;
  for (const SymbolicTensor& output : outputs_) {
    const std::string& own = output.node()->layer->name();
    std::string name = own;
    for (int again = 1; std::find(names.begin(), names.end(), name) != names.end(); ++again) {
      name = own + "_" + std::to_string(again);
    }
    names.push_back(std::move(name));
  }
  return names;
}

void Graph::name_layers() {
  std::unordered_set<std::string> taken;
  for (const auto& layer : layers_) {
    if (layer->name().empty()) continue;
    require(taken.insert(layer->name()).second,
            "two layers of the model are named \"{}\"; names must be unique: give one of them another "
            ".name (a model that is called as a layer has its own in ModelOptions)",
            layer->name());
  }
  std::unordered_map<std::string, int> counts;
  for (const auto& node : nodes_) {
    Layer& layer = *node->layer;
    if (!layer.name().empty()) continue;
    const bool input = layer.class_name() == "InputLayer";
    const std::string base = input ? "input" : snake_case(layer.class_name());
    int& count = counts.try_emplace(base, input ? 1 : 0).first->second;
    std::string name;
    do {
      name = count == 0 ? base : base + "_" + std::to_string(count);
      ++count;
    } while (!taken.insert(name).second);
    layer.set_name(name);
  }
}

void Graph::collect_weights(uint64_t seed) {
  for (const auto& layer : layers_) collect_weights_of(*layer, "", seed);
}

// Weights of a nested model are named "<model>/<layer>/<weight>"; its own graph has keyed their values.
void Graph::collect_weights_of(const Layer& layer, const std::string& prefix, uint64_t seed) {
  if (const Graph* inner = layer.nested()) {
    for (const auto& each : inner->layers()) collect_weights_of(*each, prefix + layer.name() + "/", seed);
    return;
  }
  for (const auto& weight : layer.weights()) {
    if (std::find(weights_.begin(), weights_.end(), weight.get()) != weights_.end()) continue;
    Parameter& parameter = weight->parameter;
    if (parameter.name.empty()) {
      weight->key = {seed, RandomPurpose::kInitializer, static_cast<uint32_t>(weights_.size())};
    }
    if (parameter.name.empty() || !prefix.empty()) {
      parameter.name = prefix + layer.name() + "/" + weight->name;
    }
    weights_.push_back(weight.get());
    parameters_.push_back(&parameter);
  }
}

namespace {

using Places = std::unordered_map<const Node*, SymbolicTensor>;

// Fills `places` with what stands for each call of `graph`; those of its inputs are there already. All run on
// `device` where that is not -1.
void flatten(const Graph& graph, Places& places, int device) {
  for (const auto& node : graph.nodes()) {
    if (places.contains(node.get())) continue;
    std::vector<SymbolicTensor> inputs;
    for (const SymbolicTensor& input : node->inputs) inputs.push_back(places.at(input.node().get()));
    const Graph* inner = node->layer->nested();
    if (inner == nullptr) {
      places[node.get()] = SymbolicTensor(std::make_shared<const Node>(
          Node{node->layer, inputs, node->output, device >= 0 ? device : node->device}));
      continue;
    }
    Places within;
    for (size_t i = 0; i < inputs.size(); ++i) within[inner->inputs()[i].node().get()] = inputs[i];
    flatten(*inner, within, device >= 0 ? device : node->device);
    places[node.get()] = within.at(inner->outputs().front().node().get());
  }
}

}  // namespace

std::optional<Graph> Graph::flattened() const {
  const auto is_nested = [](const auto& layer) { return layer->nested() != nullptr; };
  if (std::none_of(layers_.begin(), layers_.end(), is_nested)) return std::nullopt;
  Places places;
  for (const SymbolicTensor& input : inputs_) places[input.node().get()] = input;
  flatten(*this, places, -1);
  Graph flat;
  flat.inputs_ = inputs_;
  for (const SymbolicTensor& output : outputs_) flat.outputs_.push_back(places.at(output.node().get()));
  flat.find_nodes();
  flat.order_layers();
  return flat;
}

const std::vector<const Node*>& Graph::consumers(const Node& node) const {
  static const std::vector<const Node*> kNone;
  const auto found = consumers_.find(&node);
  return found == consumers_.end() ? kNone : found->second;
}

bool Graph::is_output(const Node& node) const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [&](const SymbolicTensor& output) { return output.node().get() == &node; });
}

int Graph::devices() const {
  int count = 1;
  for (const auto& node : nodes_) {
    const Graph* inner = node->layer->nested();
    count = std::max(count, node->device < 0 && inner != nullptr ? inner->devices() : node->device + 1);
  }
  return count;
}

int64_t Graph::count_params(bool trainable_only) const {
  int64_t count = 0;
  for (const auto& layer : layers_) count += layer->count_params(trainable_only);
  return count;
}

int64_t Graph::multiply_adds() const {
  int64_t count = 0;
  for (const auto& node : nodes_) {
    std::vector<Shape> inputs;
    for (const SymbolicTensor& input : node->inputs) inputs.push_back(input.shape());
    count += node->layer->multiply_adds(inputs);
  }
  return count;
}

}  // namespace rondo
