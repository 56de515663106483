#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// Pooling on (height, width, channels). Strides {0, 0} stand for the pool size. Padding "same" never wins a
// maximum and does not count in an average.
struct MaxPooling2D {
  std::array<int64_t, 2> pool_size = {2, 2};
  std::array<int64_t, 2> strides = {0, 0};
  std::string padding = "valid";
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

struct AveragePooling2D {
  std::array<int64_t, 2> pool_size = {2, 2};
  std::array<int64_t, 2> strides = {0, 0};
  std::string padding = "valid";
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// The maximum and the mean of each channel: (height, width, channels) to (channels).
struct GlobalMaxPooling2D {
  bool keepdims = false;  // (1, 1, channels) instead of (channels)
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

struct GlobalAveragePooling2D {
  bool keepdims = false;  // (1, 1, channels) instead of (channels)
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const MaxPooling2D& options);
std::shared_ptr<Layer> make_layer(const AveragePooling2D& options);
std::shared_ptr<Layer> make_layer(const GlobalMaxPooling2D& options);
std::shared_ptr<Layer> make_layer(const GlobalAveragePooling2D& options);

}  // namespace rondo::layers
