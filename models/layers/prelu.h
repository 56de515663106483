#pragma once

#include <string>
#include <vector>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// He et al. 2015: x, or alpha x below 0, with a trained alpha for each element of a sample, or one along the
// shared axes, which count from 1 (0 is the batch). Weight: alpha, shaped like a sample, with 1 in the shared
// axes.
struct PReLU {
  Initializer alpha_initializer = "zeros";
  Regularizer alpha_regularizer = {};
  Constraint alpha_constraint = {};
  std::vector<int64_t> shared_axes = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const PReLU& options);

}  // namespace rondo::layers
