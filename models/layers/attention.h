#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/regularizer.h"
#include "models/layers/layer_slot.h"
#include "runtime/kernels/constraint.h"

namespace rondo::layers {

// Vaswani et al. 2017, as in tf.keras: `num_heads` times softmax(q k^T / sqrt(key_dim)) v on projections of
// query, key and value, joined by a last projection. Called on {query, value} or {query, value, key}, each
// (positions, features); key is value where it is not given. The result is (query positions, query features).
// Dropout falls on the softmax. Positions that the masks of query, key or value leave out get -1e9 added to
// their scores; the query's mask is the result's. Weights: query, key and value kernels (features, heads,
// key_dim or value_dim) with biases (heads, dim), attention_output kernel (heads, value_dim, features) with
// bias (features).
struct MultiHeadAttention {
  int64_t num_heads = 1;
  int64_t key_dim = 1;
  int64_t value_dim = 0;  // 0: key_dim
  float dropout = 0.0f;
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
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const {
    return LayerHandle(*this)(inputs);
  }
};

std::shared_ptr<Layer> make_layer(const MultiHeadAttention& options);

}  // namespace rondo::layers
