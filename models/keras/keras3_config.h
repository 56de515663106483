// The configuration that Keras 3 reads in JSON and .keras archives.
#pragma once

#include "models/graph/config.h"

namespace rondo::keras {

// {class_name, config} of a model in the dialect of tf.keras 2.x, with the modules by which Keras 3 finds
// classes. What is inside keeps its 2.x form (calls as lists, shapes of inputs with their old name), which
// Keras 3 reads.
ConfigValue keras3_config(const ConfigValue& model);

}  // namespace rondo::keras
