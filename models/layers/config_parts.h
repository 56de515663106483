// What the configurations of many layers have in common, in both of Keras' dialects.
#pragma once

#include <string>
#include <string_view>

#include "models/graph/config.h"
#include "models/graph/initializer.h"

namespace rondo {

// An object that stands for something of Keras: {"class_name": ..., "config": {...}} and, in Keras 3, with
// module and registered_name. `config` may be absent.
struct ConfigObject {
  std::string class_name;
  ConfigView config;
};
ConfigObject read_object(const ConfigView& view);

// The activation's name: a string, or null for "linear". Throws FileError for anything else.
std::string activation_from(const ConfigView& config, std::string_view key = "activation");

// An initializer as a name ("zeros") or an object of either dialect, VarianceScaling included; `preset` where
// the key is absent or null. Seeds are ignored: the model's seed decides. Throws FileError for unknown ones.
Initializer initializer_from(const ConfigView& config, std::string_view key, std::string_view preset);
// As tf.keras 2.x writes it.
ConfigValue initializer_config(const Initializer& initializer);

// Throws FileError unless images are (height, width, channels).
void require_channels_last(const ConfigView& config);

}  // namespace rondo
