#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// Zeros around images (height, width, channels).
struct ZeroPadding2D {
  std::array<std::array<int64_t, 2>, 2> padding = {{{1, 1}, {1, 1}}};  // {top, bottom}, {left, right}
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const ZeroPadding2D& options);

}  // namespace rondo::layers
