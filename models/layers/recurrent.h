// Recurrent layers over (time, features), from a state of zeros.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"

namespace rondo::layers {

// Hochreiter and Schmidhuber 1997 with Keras' gates: i, f, o = sigmoid, c = f c + i tanh, h = o tanh(c).
// Gives the last h (units), or with return_sequences all of them (time, units). Weights, with columns for i,
// f, c, o: kernel (features, 4 units), recurrent_kernel (units, 4 units), bias (4 units), whose part for f
// begins as 1 with unit_forget_bias.
struct LSTM {
  int64_t units = 0;
  bool return_sequences = false;
  bool use_bias = true;
  bool unit_forget_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// Cho et al. 2014 with tf.keras' reset_after: h = z h + (1 - z) tanh(x_h + r (h U_h + b_h)). Weights, with
// columns for z, r, h: kernel (features, 3 units), recurrent_kernel (units, 3 units), bias (2, 3 units): of
// the input and of the state.
struct GRU {
  int64_t units = 0;
  bool return_sequences = false;
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const LSTM& options);
std::shared_ptr<Layer> make_layer(const GRU& options);

}  // namespace rondo::layers
