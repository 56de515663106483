#pragma once

#include <string>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// Leaves out positions whose features all equal mask_value: (..., features) with zeros there, and with a mask
// for the layers that follow. As in tf.keras, a mask passes through layers that work on each position by
// itself, through recurrent layers with return_sequences and through merges (where all say that a position
// counts); recurrent layers, MultiHeadAttention and GlobalAveragePooling1D use it; other layers drop it.
// BatchNormalization passes it on, and normalizes over all positions (as tf.keras until 2.13).
struct Masking {
  float mask_value = 0.0f;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const Masking& options);

}  // namespace rondo::layers
