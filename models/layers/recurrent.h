// Recurrent layers over (time, features), from a state of zeros.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Hochreiter and Schmidhuber 1997 with Keras' gates: i, f, o = sigmoid (or, as Keras
// had it until 2.2, hard_sigmoid), c = f c + i tanh, h = o tanh(c).
// Gives the last h (units), or with return_sequences all of them (time, units). Weights, with columns for i,
// f, c, o: kernel (features, 4 units), recurrent_kernel (units, 4 units), bias (4 units), whose part for f
// begins as 1 with unit_forget_bias.
//
// A time step that the input's mask leaves out passes the state on, so that its output is that of the step
// before; with zero_output_for_mask it is zeros. `dropout` falls on the inputs and `recurrent_dropout` on the
// states in front of the products, on the same elements at all time steps and for all gates (Gal and
// Ghahramani 2016; as Keras 3, where tf.keras draws by gate). go_backwards walks from the last time step, and
// gives the states in that order.
struct LSTM {
  int64_t units = 0;
  bool return_sequences = false;
  bool go_backwards = false;
  std::string recurrent_activation = "sigmoid";  // of the gates; or "hard_sigmoid"
  bool use_bias = true;
  bool unit_forget_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  float dropout = 0.0f;            // in [0, 1)
  float recurrent_dropout = 0.0f;  // in [0, 1)
  bool zero_output_for_mask = false;
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// Cho et al. 2014. tf.keras' reset_after: h = z h + (1 - z) tanh(x_h + r (h U_h + b_h)); without, as in Keras
// until 2.3: h = z h + (1 - z) tanh(x_h + (r h) U_h). Weights, with columns for z, r, h: kernel (features, 3
// units), recurrent_kernel (units, 3 units), bias (2, 3 units): of the input and of the state; without
// reset_after (3 units). Masks, dropout and go_backwards as for LSTM.
struct GRU {
  int64_t units = 0;
  bool return_sequences = false;
  bool go_backwards = false;
  std::string recurrent_activation = "sigmoid";  // of the gates; or "hard_sigmoid"
  bool use_bias = true;
  bool reset_after = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  float dropout = 0.0f;            // in [0, 1)
  float recurrent_dropout = 0.0f;  // in [0, 1)
  bool zero_output_for_mask = false;
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const LSTM& options);
std::shared_ptr<Layer> make_layer(const GRU& options);

}  // namespace rondo::layers
