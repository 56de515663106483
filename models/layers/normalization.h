#pragma once

#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Normalizes each channel (last axis) by the statistics of the rank's sub-batch in training, by moving ones
// otherwise and where the layer is not trainable. Weights (channels): gamma, beta, moving_mean,
// moving_variance; the last two are not trained.
struct BatchNormalization {
  int64_t axis = -1;  // the last one, which can also be named by its number (the batch is 0)
  float momentum = 0.99f;
  float epsilon = 1e-3f;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Initializer moving_mean_initializer = "zeros";
  Initializer moving_variance_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const BatchNormalization& options);

}  // namespace rondo::layers
