// Where a model's weights lie in a file of Keras.
//
// Two layouts are written and read:
//   - that of tf.keras 2.x and of .h5 files to this day: the attribute layer_names, a group for each layer,
//     in it the attribute weight_names and the arrays ("dense/kernel:0"); in a whole model below
//     /model_weights;
//   - that of Keras 3 (.keras and .weights.h5): layers/<class>[_<number>]/vars/<number>, and what layers
//     inside a layer own below them ("layers/lstm/cell/vars/0").
#pragma once

#include <string>
#include <vector>

#include "models/keras/dialect.h"
#include "models/keras/file_content.h"

namespace rondo {
class Graph;
}

namespace rondo::keras {

// A model's weights in the order of Graph::weights(), each in canonical order.
using WeightValues = std::vector<std::vector<float>>;

void put_weights(Group& group, const Graph& graph, WeightValues values, KerasDialect dialect);
void put_weights_keras3(Group& group, const Graph& graph, WeightValues values, KerasDialect dialect);

enum class Match : uint8_t { kOrder, kName };

// What the file holds for each weight of the graph, from whichever layout there is. By order, layers without
// weights are passed over on both sides; a file of Keras' own parallel model, where all weights lie in one
// layer, is taken apart. By name, layers that the file does not have keep an empty entry.
// Throws FileError that begins with `where` and names the first layer and weight that does not fit, with both
// shapes; also for names that match nothing at all.
WeightValues take_weights(const Group& root, const Graph& graph, const std::string& where,
                          Match match = Match::kOrder);

// A list of texts as an attribute; longer ones than HDF5 takes (64 KiB) lie in pieces named name0, name1, ...
void put_list(Group& group, const std::string& name, const std::vector<std::string>& list);
// Throws FileError when there is no such list.
std::vector<std::string> take_list(const Group& group, const std::string& name, const std::string& where);

}  // namespace rondo::keras
