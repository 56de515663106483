// Layers, named and defaulted as in Keras. An options struct is a layer:
//
//   auto x = layers::Input({.shape = {28, 28, 1}});
//   auto y = layers::Dense{.units = 10, .activation = "softmax"}(layers::Flatten{}(x));
//
// Calling the same object twice shares its weights; a copy of it is a layer of its own.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

struct InputOptions {
  Shape shape;  // of one sample
  std::string name = {};
};

// Where data enters a model. Throws InvalidArgument for a shape without elements.
SymbolicTensor Input(const InputOptions& options);

// activation(x kernel + bias) on the last axis. Weights: kernel (in, units), bias (units).
struct Dense {
  int64_t units = 0;
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

// All axes of a sample into one, row-major.
struct Flatten {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// "relu", "sigmoid", "tanh", "softmax" (last axis), "linear".
struct Activation {
  std::string activation = "linear";
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// In training an element is kept with probability 1 - rate and then divided by it; otherwise the identity.
struct Dropout {
  float rate = 0.5f;  // in [0, 1)
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const Dense& options);
std::shared_ptr<Layer> make_layer(const Flatten& options);
std::shared_ptr<Layer> make_layer(const Activation& options);
std::shared_ptr<Layer> make_layer(const Dropout& options);

}  // namespace rondo::layers
