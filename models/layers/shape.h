#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// The elements of a sample, in their order, under other extents; one of them may be -1: what is left.
struct Reshape {
  std::vector<int64_t> target_shape = {};
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// The axes of a sample in another order; they count from 1, since 0 is the batch: {2, 1} swaps two.
struct Permute {
  std::vector<int64_t> dims = {};
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// A sample (features) n times: (n, features).
struct RepeatVector {
  int64_t n = 1;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const RepeatVector& options);
std::shared_ptr<Layer> make_layer(const Reshape& options);
std::shared_ptr<Layer> make_layer(const Permute& options);

}  // namespace rondo::layers
