// The configuration that Keras 3 reads in JSON and .keras archives.
#pragma once

#include "models/graph/config.h"

namespace rondo {
class Graph;
}

namespace rondo::keras {

// {class_name, config} of a model in the dialect of tf.keras 2.x, with the modules by which Keras 3 finds
// classes. What is inside keeps its 2.x form (calls as lists, shapes of inputs with their old name), which
// Keras 3 reads.
ConfigValue keras3_config(const ConfigValue& model);

// The same model without what Keras 3 refuses and tf.keras 2.x asks for: the shapes that MultiHeadAttention
// has seen, and tensors as arguments of calls in the form of lists. `graph` is the model's.
ConfigValue without_keras2_only(const ConfigValue& model, const Graph& graph);

}  // namespace rondo::keras
