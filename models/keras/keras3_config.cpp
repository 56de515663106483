#include "models/keras/keras3_config.h"

#include <string_view>

#include "models/graph/graph.h"
#include "models/graph/layer.h"

namespace rondo::keras {
namespace {

bool is_object(const Config& config) {
  return config.find("class_name") != nullptr && config.find("config") != nullptr;
}

std::string_view module_of(std::string_view key, const Config& object) {
  if (key.ends_with("_initializer")) return "keras.initializers";
  if (key.ends_with("_regularizer")) return "keras.regularizers";
  if (key.ends_with("_constraint")) return "keras.constraints";
  const std::string* name = object.find("class_name")->as<std::string>();
  if (name != nullptr && (*name == "Functional" || *name == "Sequential")) return "keras";
  return "keras.layers";
}

ConfigValue convert(std::string_view key, const ConfigValue& value) {
  if (const ConfigList* list = value.as<ConfigList>()) {
    ConfigList converted;
    for (const ConfigValue& entry : *list) converted.push_back(convert(key, entry));
    return converted;
  }
  const Config* config = value.as<Config>();
  if (config == nullptr) return value;
  Config converted;
  if (is_object(*config)) converted.set("module", module_of(key, *config));
  for (const ConfigEntry& entry : config->entries()) {
    converted.set(entry.key, convert(entry.key, entry.value));
  }
  if (is_object(*config)) {
    // Keras has no public name for functional models; its Model makes one from the same keys.
    const std::string* name = config->find("class_name")->as<std::string>();
    if (name != nullptr && *name == "Functional") converted.set("class_name", "Model");
    converted.set("registered_name", nullptr);
  }
  return converted;
}

bool has_class(const Config& object, std::string_view name) {
  const ConfigValue* found = object.find("class_name");
  const std::string* text = found == nullptr ? nullptr : found->as<std::string>();
  return text != nullptr && *text == name;
}

const Layer* find_layer(const Graph& graph, const std::string& name) {
  for (const auto& layer : graph.layers()) {
    if (layer->name() == name) return layer.get();
  }
  return nullptr;
}

// ["x", 0, 0] and what follows to a tensor of Keras 3.
ConfigValue tensor_of(const ConfigList& reference, const Graph& graph) {
  const std::string& name = *reference[0].as<std::string>();
  int64_t call = *reference[1].as<int64_t>();
  const Layer* layer = find_layer(graph, name);
  if (layer != nullptr && layer->nested() != nullptr) --call;  // which count the call that made them
  ConfigValue shape = ConfigList{nullptr};
  for (const auto& node : graph.nodes()) {
    if (node->layer.get() == layer && call-- == 0) shape = batched_shape_config(node->output);
  }
  return Config{{"class_name", "__keras_tensor__"},
                {"config", Config{{"shape", std::move(shape)},
                                  {"dtype", "float32"},
                                  {"keras_history", ConfigList{reference[0], reference[1], reference[2]}}}}};
}

// [["x", 0, 0, {"value": ["y", 0, 0]}]] to {"args": [x], "kwargs": {"value": y}}. Calls without tensors among
// their arguments stay as they are.
ConfigValue call_of(const ConfigValue& call, const Graph& graph) {
  const ConfigList& inputs = *call.as<ConfigList>();
  if (inputs.empty()) return call;
  const Config& arguments = *inputs.front().as<ConfigList>()->at(3).as<Config>();
  if (arguments.entries().empty()) return call;
  ConfigList args;
  for (const ConfigValue& input : inputs) args.push_back(tensor_of(*input.as<ConfigList>(), graph));
  Config kwargs;
  for (const ConfigEntry& entry : arguments.entries()) {
    kwargs.set(entry.key, tensor_of(*entry.value.as<ConfigList>(), graph));
  }
  return Config{{"args", std::move(args)}, {"kwargs", std::move(kwargs)}};
}

ConfigValue settings_of(const Config& settings, const Graph& graph);

ConfigValue layer_of(const Config& entry, const Graph& graph) {
  const std::string* name = entry.find("config")->as<Config>()->find("name")->as<std::string>();
  const Layer* layer = name == nullptr ? nullptr : find_layer(graph, *name);
  Config converted = entry;
  if (layer != nullptr && layer->nested() != nullptr) {
    converted.set("config", settings_of(*entry.find("config")->as<Config>(), *layer->nested()));
  } else if (has_class(entry, "MultiHeadAttention")) {
    Config settings;
    for (const ConfigEntry& setting : entry.find("config")->as<Config>()->entries()) {
      if (setting.key != "query_shape" && setting.key != "key_shape" && setting.key != "value_shape") {
        settings.set(setting.key, setting.value);
      }
    }
    converted.set("config", std::move(settings));
  }
  if (const ConfigValue* calls = entry.find("inbound_nodes")) {
    ConfigList written;
    for (const ConfigValue& call : *calls->as<ConfigList>()) written.push_back(call_of(call, graph));
    converted.set("inbound_nodes", std::move(written));
  }
  return converted;
}

// Of a model.
ConfigValue settings_of(const Config& settings, const Graph& graph) {
  Config converted = settings;
  ConfigList layers;
  for (const ConfigValue& layer : *settings.find("layers")->as<ConfigList>()) {
    layers.push_back(layer_of(*layer.as<Config>(), graph));
  }
  converted.set("layers", std::move(layers));
  return converted;
}

}  // namespace

ConfigValue keras3_config(const ConfigValue& model) {
  return convert("", model);
}

ConfigValue without_keras2_only(const ConfigValue& model, const Graph& graph) {
  Config converted = *model.as<Config>();
  converted.set("config", settings_of(*converted.find("config")->as<Config>(), graph));
  return converted;
}

}  // namespace rondo::keras
