// Layers that join two or more tensors of one shape element by element, where extents of 1 are repeated;
// layers::Add is in merge.h.
#pragma once

#include <string>
#include <vector>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

struct Multiply {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

// The mean.
struct Average {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

// Of equal elements the earlier one takes the gradient.
struct Maximum {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

struct Minimum {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

// The first of two tensors less the second.
struct Subtract {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

std::shared_ptr<Layer> make_layer(const Multiply& options);
std::shared_ptr<Layer> make_layer(const Average& options);
std::shared_ptr<Layer> make_layer(const Maximum& options);
std::shared_ptr<Layer> make_layer(const Minimum& options);
std::shared_ptr<Layer> make_layer(const Subtract& options);

}  // namespace rondo::layers
