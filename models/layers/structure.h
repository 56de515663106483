// A model's structure as Keras' configuration, and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/layer.h"

namespace rondo {

class ConfigValue;
class ConfigView;
class Graph;

// What a model is made from.
struct Structure {
  std::string name = {};
  bool sequential = false;
  std::vector<SymbolicTensor> inputs = {};
  std::vector<SymbolicTensor> outputs = {};
};

// {"class_name": ..., "config": {...}} as tf.keras 2.4 to 2.15 write it: "Sequential", for a chain that was
// made as one, or "Functional".
ConfigValue structure_config(const Graph& graph, const std::string& name, bool sequential);

// Makes the layers and calls them. Reads "Sequential", "Functional" and "Model" of Keras 2.2 up to 3: calls
// listed as [layer, node, tensor, arguments] or as args and kwargs, an Input of its own or a shape in the
// first layer. Throws FileError with the way to what is wrong: unknown classes or layers, calls in a circle,
// shapes that do not fit, sizes beyond 2^31 elements a sample or 2^36 a weight, more than 10,000 layers or
// 20,000 calls. Layers with several outputs are not supported.
// Models in models become layers (see nested.h) whose fresh weights come from `seed`; altogether they may
// have 100,000 calls of layers.
Structure structure_from(const ConfigView& view, uint64_t seed = 0);

}  // namespace rondo
