#include "models/layers/structure.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "models/graph/config.h"
#include "models/graph/graph.h"
#include "models/graph/nested.h"
#include "models/layers/call_list.h"
#include "models/layers/config_parts.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

bool is_model_class(std::string_view class_name) {
  return class_name == "Functional" || class_name == "Model" || class_name == "Sequential";
}

// ---- writing

ConfigList reference(const std::string& layer, int64_t node) {
  return {layer, node, int64_t{0}};
}

class FunctionalWriter {
 public:
  explicit FunctionalWriter(const Graph& graph) : graph_(graph) {
    std::unordered_map<const Layer*, int64_t> counts;
    for (const auto& node : graph.nodes()) {
      // In Keras a nested model has had a call before it was called here.
      const int64_t first = is_model_class(node->layer->class_name()) ? 1 : 0;
      indices_[node.get()] = first + counts[node->layer.get()]++;
    }
  }

  ConfigValue write(const std::string& name) const {
    ConfigList layers;
    for (const auto& layer : graph_.layers()) {
      layers.push_back(Config{{"class_name", layer->class_name()},
                              {"config", layer->config()},
                              {"name", layer->name()},
                              {"inbound_nodes", calls_of(*layer)}});
    }
    return Config{{"name", name},
                  {"trainable", true},
                  {"layers", std::move(layers)},
                  {"input_layers", ends(graph_.inputs())},
                  {"output_layers", ends(graph_.outputs())}};
  }

 private:
  ConfigList calls_of(const Layer& layer) const {
    ConfigList calls;
    if (layer.class_name() == "InputLayer") return calls;
    const auto keywords = call_keywords(layer.class_name());
    for (const auto& node : graph_.nodes()) {
      if (node->layer.get() != &layer) continue;
      ConfigList call;
      Config arguments;
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        ConfigList input = place(node->inputs[i]);
        if (!keywords.empty() && i > 0) {
          RONDO_CHECK(i <= keywords.size());
          arguments.set(keywords[i - 1], std::move(input));
        } else {
          call.push_back(std::move(input));
        }
      }
      for (ConfigValue& input : call) {
        ConfigList with_arguments = *input.as<ConfigList>();
        with_arguments.push_back(arguments);
        input = std::move(with_arguments);
      }
      calls.push_back(std::move(call));
    }
    return calls;
  }
  ConfigList place(const SymbolicTensor& tensor) const {
    return reference(tensor.node()->layer->name(), indices_.at(tensor.node().get()));
  }
  ConfigList ends(const std::vector<SymbolicTensor>& tensors) const {
    ConfigList list;
    for (const SymbolicTensor& tensor : tensors) list.push_back(place(tensor));
    return list;
  }

  const Graph& graph_;
  std::unordered_map<const Node*, int64_t> indices_;
};

ConfigValue sequential_config(const Graph& graph, const std::string& name) {
  ConfigList layers;
  for (const auto& node : graph.nodes()) {
    layers.push_back(Config{{"class_name", node->layer->class_name()}, {"config", node->layer->config()}});
  }
  return Config{{"name", name}, {"layers", std::move(layers)}};
}

// ---- reading

constexpr size_t kMostLayers = 10'000;
constexpr size_t kMostCalls = 20'000;
constexpr int64_t kMostNestedCalls = 100'000;
constexpr int64_t kMostInSample = int64_t{1} << 31;
constexpr int64_t kMostInWeight = int64_t{1} << 36;

bool fits(const Shape& shape, int64_t most) {
  int64_t elements = 1;
  for (const int64_t extent : shape.extents()) {
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > most) return false;
  }
  return true;
}

SymbolicTensor input_tensor(const std::shared_ptr<Layer>& layer) {
  const Shape shape = static_cast<const InputLayer&>(*layer).shape();
  return SymbolicTensor(std::make_shared<const Node>(Node{layer, {}, shape}));
}

// Calls a layer; what it cannot do is told with the place in the file.
SymbolicTensor call(const std::shared_ptr<Layer>& layer, const std::vector<SymbolicTensor>& inputs,
                    const std::string& where) {
  try {
    const SymbolicTensor output = LayerHandle(layer)(inputs);
    require(fits(output.shape(), kMostInSample), "{} gives samples of shape {}, more than 2^31 elements",
            layer->title(), output.shape().text());
    for (const auto& weight : layer->weights()) {
      require(fits(weight->shape, kMostInWeight), "{}: weight \"{}\" of shape {} has more than 2^36 elements",
              layer->title(), weight->name, weight->shape.text());
    }
    return output;
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", where, error.what());
  }
}

// A model in a model.
class InnerModel final : public NestedModel {
 public:
  InnerModel(const Structure& structure, std::shared_ptr<const Graph> graph, int64_t calls)
      : NestedModel(structure.name, structure.sequential, std::move(graph)), calls_(calls) {}
  // Calls of layers that one call of this one stands for.
  int64_t calls() const { return calls_; }
  Config config() const override {
    const ConfigValue whole = structure_config(*nested(), name(), class_name() == "Sequential");
    return *whole.as<Config>()->find("config")->as<Config>();
  }

 private:
  int64_t calls_;
};

int64_t calls_of(const Layer& layer) {
  const auto* inner = dynamic_cast<const InnerModel*>(&layer);
  return inner == nullptr ? 1 : inner->calls();
}

// Models in models multiply calls: a short text could stand for more than fit into any memory.
void add_calls_of(const Layer& layer, int64_t& calls, const std::string& where) {
  calls += calls_of(layer);
  if (calls > kMostNestedCalls) {
    raise<FileError>("{}: the model has more than 100000 calls of layers, nested models included", where);
  }
}

std::shared_ptr<Layer> read_layer(const ConfigView& entry, uint64_t seed) {
  const ConfigObject object = read_object(entry);
  if (!is_model_class(object.class_name)) return layer_from_config(object.class_name, object.config);
  Structure structure = structure_from(entry, seed);
  try {
    auto graph = std::make_shared<const Graph>(structure.inputs, structure.outputs, seed);
    int64_t calls = 0;
    for (const auto& node : graph->nodes()) add_calls_of(*node->layer, calls, entry.where());
    auto layer = std::make_shared<InnerModel>(structure, std::move(graph), calls);
    if (object.config.is_config() && !object.config.boolean("trainable", true)) layer->set_trainable(false);
    return layer;
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", entry.where(), error.what());
  }
}

// The shape of the samples where no Input says it: in the first layer or, of a model built by its first
// data, in the model.
Shape first_shape(const ConfigView& config, const std::vector<ConfigView>& layers) {
  const ConfigView first = read_object(layers.front()).config;
  for (const char* key : {"batch_input_shape", "batch_shape"}) {
    if (const auto shape = first.find(key)) return shape->sample_shape();
  }
  const auto built = config.find("build_input_shape");
  if (!built) raise<FileError>("{}: no layer says what shape the input has", config.where());
  return built->sample_shape();
}

Structure read_sequential(const ConfigView& config, uint64_t seed) {
  // Keras before 2.2.3 wrote the list of layers alone.
  const auto layers = config.is_list() ? config.list() : config["layers"].list();
  if (layers.empty() || layers.size() > kMostLayers) config.fail("a model of 1 to 10000 layers");
  Structure structure{.name = config.is_list() ? "" : config.string("name", ""), .sequential = true};
  size_t next = 0;
  if (layers.front()["class_name"].string() == "InputLayer") {
    structure.inputs = {input_tensor(read_layer(layers[next++], seed))};
  } else {
    structure.inputs = {input_tensor(std::make_shared<InputLayer>("", first_shape(config, layers)))};
  }
  SymbolicTensor last = structure.inputs.front();
  int64_t calls = 0;
  for (; next < layers.size(); ++next) {
    if (layers[next]["class_name"].string() == "InputLayer") {
      raise<FileError>("{}: an InputLayer stands behind other layers", layers[next].where());
    }
    const auto layer = read_layer(layers[next], seed + next + 1);
    add_calls_of(*layer, calls, layers[next].where());
    last = call(layer, {last}, layers[next].where());
  }
  structure.outputs = {last};
  return structure;
}

// The layers of a functional model, called in an order in which every input is there.
class FunctionalReader {
 public:
  FunctionalReader(const ConfigView& config, uint64_t seed) : config_(config), seed_(seed) {}

  Structure read() {
    const auto entries = config_["layers"].list();
    if (entries.empty() || entries.size() > kMostLayers) config_["layers"].fail("1 to 10000 layers");
    for (const ConfigView& entry : entries) add_layer(entry);
    for (size_t i = 0; i < entries.size(); ++i) add_calls(entries[i], i);
    connect();
    run();
    Structure structure{.name = config_.string("name", "")};
    structure.inputs = ends("input_layers");
    structure.outputs = ends("output_layers");
    return structure;
  }

 private:
  struct Entry {
    std::shared_ptr<Layer> layer = {};
    std::vector<size_t> calls = {};  // by their order in the file
    int64_t first_node = 0;
  };
  struct PendingCall {
    size_t layer = 0;
    std::string where = {};
    std::vector<CallInput> inputs = {};
    std::vector<size_t> input_calls = {};
    std::vector<size_t> readers = {};
    size_t missing = 0;
    SymbolicTensor output = {};
  };

  void add_layer(const ConfigView& entry) {
    auto layer = read_layer(entry, seed_ + entries_.size() + 1);
    const std::string name = entry.string("name", layer->name());
    layer->set_name(name);
    if (name.empty()) raise<FileError>("{}: a layer of a functional model needs a name", entry.where());
    if (!by_name_.emplace(name, entries_.size()).second) {
      raise<FileError>("{}: a second layer is named \"{}\"", entry.where(), name);
    }
    entries_.push_back({std::move(layer)});
  }

  void add_calls(const ConfigView& view, size_t index) {
    Entry& entry = entries_[index];
    const ConfigView nodes = view["inbound_nodes"];
    if (entry.layer->class_name() == "InputLayer") {
      entry.calls.push_back(calls_.size());
      calls_.push_back({.layer = index, .where = view.where()});
      return;
    }
    for (const ConfigView& node : nodes.list()) {
      if (calls_.size() == kMostCalls) nodes.fail("at most 20000 calls in a model");
      entry.calls.push_back(calls_.size());
      calls_.push_back({.layer = index,
                        .where = view.where(),
                        .inputs = read_call(node, call_keywords(entry.layer->class_name()))});
    }
  }

  // Node numbers of a nested model begin at 1 where Keras counts the call that made it.
  void find_first_nodes() {
    std::unordered_map<size_t, int64_t> least;
    for (const PendingCall& pending : calls_) {
      for (const CallInput& input : pending.inputs) {
        const auto found = by_name_.find(input.layer);
        if (found == by_name_.end()) continue;
        auto [known, fresh] = least.try_emplace(found->second, input.node);
        if (!fresh) known->second = std::min(known->second, input.node);
      }
    }
    for (const char* key : {"input_layers", "output_layers"}) {
      for (const CallInput& end : read_ends(config_[key])) {
        const auto found = by_name_.find(end.layer);
        if (found == by_name_.end()) continue;
        auto [known, fresh] = least.try_emplace(found->second, end.node);
        if (!fresh) known->second = std::min(known->second, end.node);
      }
    }
    for (const auto& [index, node] : least) {
      Entry& entry = entries_[index];
      if (is_model_class(entry.layer->class_name()) && node > 0) entry.first_node = 1;
    }
  }

  size_t find_call(const CallInput& input) const {
    const auto found = by_name_.find(input.layer);
    if (found == by_name_.end()) {
      raise<FileError>("{}: there is no layer named \"{}\"", input.where, input.layer);
    }
    const Entry& entry = entries_[found->second];
    const int64_t node = input.node - entry.first_node;
    if (node < 0 || node >= static_cast<int64_t>(entry.calls.size())) {
      raise<FileError>("{}: asks for call {} of layer \"{}\", which is called {} times", input.where,
                       input.node, input.layer, entry.calls.size());
    }
    if (input.tensor != 0) {
      raise<FileError>(
          "{}: asks for output {} of layer \"{}\"; layers with several outputs are not supported",
          input.where, input.tensor, input.layer);
    }
    return entry.calls[static_cast<size_t>(node)];
  }

  void connect() {
    find_first_nodes();
    for (size_t i = 0; i < calls_.size(); ++i) {
      for (const CallInput& input : calls_[i].inputs) {
        const size_t from = find_call(input);
        calls_[i].input_calls.push_back(from);
        calls_[from].readers.push_back(i);
        ++calls_[i].missing;
      }
    }
  }

  void run() {
    std::vector<size_t> ready;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].missing == 0) ready.push_back(i);
    }
    for (size_t at = 0; at < ready.size(); ++at) {
      PendingCall& pending = calls_[ready[at]];
      const auto& layer = entries_[pending.layer].layer;
      std::vector<SymbolicTensor> inputs;
      for (const size_t from : pending.input_calls) inputs.push_back(calls_[from].output);
      if (layer->class_name() == "InputLayer") {
        pending.output = input_tensor(layer);
      } else {
        if (inputs.empty()) raise<FileError>("{}: a call without an input", pending.where);
        add_calls_of(*layer, nested_calls_, pending.where);
        pending.output = call(layer, inputs, pending.where);
      }
      for (const size_t reader : pending.readers) {
        if (--calls_[reader].missing == 0) ready.push_back(reader);
      }
    }
    for (const PendingCall& pending : calls_) {
      if (pending.missing == 0) continue;
      raise<FileError>("{}: layer \"{}\" depends on its own output", pending.where,
                       entries_[pending.layer].layer->name());
    }
  }

  std::vector<SymbolicTensor> ends(const char* key) const {
    std::vector<SymbolicTensor> tensors;
    for (const CallInput& end : read_ends(config_[key])) tensors.push_back(calls_[find_call(end)].output);
    if (tensors.empty()) config_[key].fail("at least one layer");
    return tensors;
  }

  const ConfigView& config_;
  uint64_t seed_;
  int64_t nested_calls_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<PendingCall> calls_;
};

}  // namespace

ConfigValue structure_config(const Graph& graph, const std::string& name, bool sequential) {
  if (sequential) return Config{{"class_name", "Sequential"}, {"config", sequential_config(graph, name)}};
  return Config{{"class_name", "Functional"}, {"config", FunctionalWriter(graph).write(name)}};
}

Structure structure_from(const ConfigView& view, uint64_t seed) {
  const std::string& class_name = view["class_name"].string();
  const ConfigView config = view["config"];
  if (class_name == "Sequential") return read_sequential(config, seed);
  if (class_name == "Functional" || class_name == "Model") return FunctionalReader(config, seed).read();
  raise<FileError>("{}: is \"{}\"; models of class Sequential, Functional and Model can be read",
                   view["class_name"].where(), class_name);
}

}  // namespace rondo
