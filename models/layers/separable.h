#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Each channel correlated with `depth_multiplier` windows of its own: (height, width, channels) to (height,
// width, channels * depth_multiplier), where result channel c * depth_multiplier + j is made from channel c.
// Padding as in Conv2D. Weights: depthwise_kernel (kh, kw, channels, depth_multiplier), bias (channels *
// depth_multiplier).
struct DepthwiseConv2D {
  std::array<int64_t, 2> kernel_size = {1, 1};
  std::array<int64_t, 2> strides = {1, 1};
  std::string padding = "valid";
  int64_t depth_multiplier = 1;
  std::array<int64_t, 2> dilation_rate = {1, 1};
  std::string activation = "linear";
  bool use_bias = true;
  Initializer depthwise_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer depthwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint bias_constraint = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// A depthwise convolution without bias, then a 1 x 1 convolution to `filters` channels, nothing between.
// Weights: depthwise_kernel, pointwise_kernel (1, 1, channels * depth_multiplier, filters), bias (filters).
struct SeparableConv2D {
  int64_t filters = 0;
  std::array<int64_t, 2> kernel_size = {1, 1};
  std::array<int64_t, 2> strides = {1, 1};
  std::string padding = "valid";
  int64_t depth_multiplier = 1;
  std::array<int64_t, 2> dilation_rate = {1, 1};
  std::string activation = "linear";
  bool use_bias = true;
  Initializer depthwise_initializer = "glorot_uniform";
  Initializer pointwise_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer depthwise_regularizer = {};
  Regularizer pointwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint pointwise_constraint = {};
  Constraint bias_constraint = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const DepthwiseConv2D& options);
std::shared_ptr<Layer> make_layer(const SeparableConv2D& options);

}  // namespace rondo::layers
