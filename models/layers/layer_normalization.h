#pragma once

#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Normalizes each position over the last axis by its own mean and biased variance, in training and inference.
// Weights (channels): gamma, beta.
struct LayerNormalization {
  int axis = -1;  // the last; with the batch as axis 0
  float epsilon = 1e-3f;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const LayerNormalization& options);

}  // namespace rondo::layers
