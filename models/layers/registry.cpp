#include "models/layers/registry.h"

#include <array>

#include "models/graph/config.h"
#include "models/graph/layer.h"
#include "models/layers/config_parts.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

using Table = std::span<const LayerClass> (*)();
constexpr std::array kTables{Table(&advanced_activation_classes),
                             Table(&attention_classes),
                             Table(&convolution_classes),
                             Table(&core_classes),
                             Table(&embedding_classes),
                             Table(&join_classes),
                             Table(&layer_normalization_classes),
                             Table(&masking_classes),
                             Table(&merge_classes),
                             Table(&normalization_classes),
                             Table(&padding_classes),
                             Table(&pooling_classes),
                             Table(&prelu_classes),
                             Table(&recurrent_classes),
                             Table(&regularization_classes),
                             Table(&separable_classes),
                             Table(&shape_classes),
                             Table(&wrapper_classes)};

const LayerClass* find_class(std::string_view name) {
  for (const Table table : kTables) {
    for (const LayerClass& candidate : table()) {
      if (candidate.name == name) return &candidate;
    }
  }
  return nullptr;
}

// A type of numbers by name, or as Keras 3 writes it: an object with a policy. Weights are float32 in all of
// them; the program, not the file, says what products are computed in.
void check_dtype(const ConfigView& config) {
  const auto dtype = config.find("dtype");
  if (!dtype) return;
  const std::string name = dtype->is_config() ? read_object(*dtype).config["name"].string() : dtype->string();
  for (const std::string_view known : {"float32", "mixed_bfloat16", "mixed_float16"}) {
    if (name == known) return;
  }
  raise<FileError>("{}: layers of type \"{}\" are not supported; float32 is", dtype->where(), name);
}

}  // namespace

std::vector<std::string> layer_class_names() {
  std::vector<std::string> names;
  for (const Table table : kTables) {
    for (const LayerClass& known : table()) names.emplace_back(known.name);
  }
  return names;
}

std::shared_ptr<Layer> layer_from_config(std::string_view class_name, const ConfigView& config) {
  const LayerClass* found = find_class(class_name);
  if (found == nullptr) {
    std::string names;
    for (const std::string& name : layer_class_names()) names += (names.empty() ? "" : ", ") + name;
    raise<FileError>("{}: layers of class \"{}\" are not supported; these are: {}", config.where(),
                     class_name, names);
  }
  if (class_name != "InputLayer") check_dtype(config);  // words may be whole numbers
  std::shared_ptr<Layer> layer;
  try {
    layer = found->make(config);
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", config.where(), error.what());
  }
  layer->set_name(config.string("name", ""));
  layer->set_trainable(config.boolean("trainable", true));
  return layer;
}

}  // namespace rondo
