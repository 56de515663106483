#include "models/keras/keras3_config.h"

#include <string_view>

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

}  // namespace

ConfigValue keras3_config(const ConfigValue& model) {
  return convert("", model);
}

}  // namespace rondo::keras
