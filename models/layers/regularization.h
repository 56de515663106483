#pragma once

#include <string>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// The identity, with a penalty on what passes: (l1 sum |x| + l2 sum x^2) / rows of the batch is added to the
// loss.
struct ActivityRegularization {
  double l1 = 0.0;
  double l2 = 0.0;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const ActivityRegularization& options);

}  // namespace rondo::layers
