#pragma once

#include <string>
#include <vector>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// The sum of two or more tensors of one shape; extents of 1 are repeated.
struct Add {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

// Two or more tensors joined along an axis, which counts the batch as axis 0 (so 0 is refused) or from the
// end.
struct Concatenate {
  int axis = -1;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

std::shared_ptr<Layer> make_layer(const Add& options);
std::shared_ptr<Layer> make_layer(const Concatenate& options);

}  // namespace rondo::layers
