// Which layer a class name of a file stands for.
//
// A new layer needs three things to be saved and loaded:
//   - Layer::config() with all of Keras' keys for its class (tf.keras 2.x; those without a counterpart here
//     with Keras' default, so that Keras can make the layer from them), beginning with Layer::config();
//   - weights named as Keras names them below the layer ("kernel", "lstm_cell/kernel") and in its order;
//   - a LayerClass in the table of its source file, from a function that reads the configuration. The tables
//     are listed in registry.cpp. Read both dialects there: config_parts.h has what they share.
// What a configuration says and the layer cannot do must throw (require_unset, require_string): a model that
// computes something else than its file says is worse than none. Keys that only matter elsewhere are ignored.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

class ConfigView;
class Layer;

struct LayerClass {
  std::string_view name;  // Keras': "Conv2D"
  // From what Keras calls get_config(). The name, `trainable` and dtype are the registry's business.
  std::shared_ptr<Layer> (*make)(const ConfigView& config);
};

// The layer of this class with the name and settings of `config`. Throws FileError that begins with the way
// to the setting which is missing, of the wrong type, out of range or not supported, or that lists the
// classes when there is no such one.
std::shared_ptr<Layer> layer_from_config(std::string_view class_name, const ConfigView& config);

std::vector<std::string> layer_class_names();

// The tables, one for each source file of layers.
std::span<const LayerClass> advanced_activation_classes();
std::span<const LayerClass> attention_classes();
std::span<const LayerClass> convolution_classes();
std::span<const LayerClass> core_classes();
std::span<const LayerClass> embedding_classes();
std::span<const LayerClass> join_classes();
std::span<const LayerClass> layer_normalization_classes();
std::span<const LayerClass> masking_classes();
std::span<const LayerClass> merge_classes();
std::span<const LayerClass> normalization_classes();
std::span<const LayerClass> padding_classes();
std::span<const LayerClass> pooling_classes();
std::span<const LayerClass> prelu_classes();
std::span<const LayerClass> recurrent_classes();
std::span<const LayerClass> regularization_classes();
std::span<const LayerClass> separable_classes();
std::span<const LayerClass> shape_classes();
std::span<const LayerClass> wrapper_classes();

}  // namespace rondo
