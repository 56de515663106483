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

// The same over the positions of (positions, channels). The mean leaves out positions that a mask leaves out
// (NaN where it leaves out all); its result has no mask.
struct GlobalMaxPooling1D {
  bool keepdims = false;  // (1, channels) instead of (channels)
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

struct GlobalAveragePooling1D {
  bool keepdims = false;  // (1, channels) instead of (channels)
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// Pooling on (positions, channels); 0 strides stand for the pool size.
struct MaxPooling1D {
  int64_t pool_size = 2;
  int64_t strides = 0;
  std::string padding = "valid";
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

struct AveragePooling1D {
  int64_t pool_size = 2;
  int64_t strides = 0;
  std::string padding = "valid";
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const GlobalMaxPooling1D& options);
std::shared_ptr<Layer> make_layer(const GlobalAveragePooling1D& options);
std::shared_ptr<Layer> make_layer(const MaxPooling1D& options);
std::shared_ptr<Layer> make_layer(const AveragePooling1D& options);
std::shared_ptr<Layer> make_layer(const MaxPooling2D& options);
std::shared_ptr<Layer> make_layer(const AveragePooling2D& options);
std::shared_ptr<Layer> make_layer(const GlobalMaxPooling2D& options);
std::shared_ptr<Layer> make_layer(const GlobalAveragePooling2D& options);

}  // namespace rondo::layers
