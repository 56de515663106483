// Activations with parameters of their own; layers::Activation applies one by name.
#pragma once

#include <optional>
#include <string>

#include "models/layers/layer_slot.h"

namespace rondo::layers {

// max_value from there on, x from the threshold on, negative_slope (x - threshold) below. None may be below
// 0.
struct ReLU {
  std::optional<float> max_value = std::nullopt;
  float negative_slope = 0.0f;
  float threshold = 0.0f;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// x, or alpha x below 0.
struct LeakyReLU {
  float alpha = 0.3f;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// x, or alpha (e^x - 1) below 0.
struct ELU {
  float alpha = 1.0f;
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

// Over the last axis.
struct Softmax {
  std::string name = {};
  LayerSlot layer = {};
  SymbolicTensor operator()(const SymbolicTensor& input) const { return LayerHandle(*this)(input); }
};

std::shared_ptr<Layer> make_layer(const ReLU& options);
std::shared_ptr<Layer> make_layer(const LeakyReLU& options);
std::shared_ptr<Layer> make_layer(const ELU& options);
std::shared_ptr<Layer> make_layer(const Softmax& options);

}  // namespace rondo::layers
