#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Cross-correlation on (height, width, channels). Padding "valid" or "same"; "same" puts an odd extra row or
// column after the image. Weights: kernel (kh, kw, in / groups, filters), bias (filters).
struct Conv2D {
  int64_t filters = 0;
  std::array<int64_t, 2> kernel_size = {1, 1};
  std::array<int64_t, 2> strides = {1, 1};
  std::string padding = "valid";
  std::array<int64_t, 2> dilation_rate = {1, 1};
  int64_t groups = 1;
  std::string activation = "linear";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const Conv2D& options);

}  // namespace rondo::layers
