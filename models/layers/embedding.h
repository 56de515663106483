#pragma once

#include <cstdint>
#include <string>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Numbers from 0 to input_dim - 1 (as floats: models take no others) to rows of a trained table: (...) to
// (..., output_dim). Weight: embeddings (input_dim, output_dim).
struct Embedding {
  int64_t input_dim = 0;
  int64_t output_dim = 0;
  bool mask_zero = false;  // 0 stands for no word: its position is left out by the result's mask
  Initializer embeddings_initializer = "random_uniform";
  Regularizer embeddings_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint embeddings_constraint = {};
  bool trainable = true;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const Embedding& options);

}  // namespace rondo::layers
