// Layers around other layers.
#pragma once

#include <string>
#include <variant>

#include "models/layers/layer_slot.h"
#include "models/layers/recurrent.h"

namespace rondo::layers {

// A recurrent layer and one of its kind, with weights of its own, that walks from the last time step to the
// first. The two results, in the order of the input, are joined: "concat" (last axis), "sum", "mul" or "ave".
// As in tf.keras, with return_sequences steps that a mask leaves out give zeros. Weights: those of the
// forward layer, then those of the backward layer.
struct Bidirectional {
  std::variant<LSTM, GRU> of;  // its go_backwards turns both directions
  std::string merge_mode = "concat";
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// A layer applied to each time step of (time, ...) by itself, with the same weights. Masks pass. Takes layers
// that treat every row by itself: not BatchNormalization or Dropout. Throws InvalidArgument for others.
struct TimeDistributed {
  LayerHandle of;
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const Bidirectional& options);
std::shared_ptr<Layer> make_layer(const TimeDistributed& options);

}  // namespace rondo::layers
