// Every layer gives a configuration from which the same layer is made again.
#include <gmock/gmock.h>

#include "models/graph/config.h"
#include "models/graph/graph.h"
#include "models/layers/advanced_activations.h"
#include "models/layers/attention.h"
#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/embedding.h"
#include "models/layers/join.h"
#include "models/layers/layer_normalization.h"
#include "models/layers/padding.h"
#include "models/layers/pooling.h"
#include "models/layers/recurrent.h"
#include "models/layers/registry.h"
#include "models/layers/separable.h"
#include "models/layers/shape.h"
#include "models/layers/structure.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

std::string text(const ConfigValue& value) {
  std::string out;
  if (const auto* flag = value.as<bool>()) return *flag ? "true" : "false";
  if (const auto* whole = value.as<int64_t>()) return std::to_string(*whole);
  if (const auto* number = value.as<double>()) return std::to_string(*number);
  if (const auto* string = value.as<std::string>()) return '"' + *string + '"';
  if (const auto* list = value.as<ConfigList>()) {
    for (const ConfigValue& each : *list) out += text(each) + " ";
    return "[" + out + "]";
  }
  if (const auto* config = value.as<Config>()) {
    for (const ConfigEntry& entry : config->entries()) out += entry.key + ":" + text(entry.value) + " ";
    return "{" + out + "}";
  }
  return "null";
}

// Keras' text, a model made from it, and that model's text.
void expect_round_trip(const Graph& graph) {
  const ConfigValue written = structure_config(graph, "m", false);
  const Structure read = structure_from(ConfigView(written, "test"));
  const Graph again(read.inputs, read.outputs, 1);
  EXPECT_EQ(text(structure_config(again, "m", false)), text(written));
  EXPECT_EQ(again.count_params(), graph.count_params());
}

TEST(LayerConfig, OfImageLayers) {
  const auto in = layers::Input({.shape = {8, 8, 3}});
  auto x = layers::ZeroPadding2D{.padding = {{{1, 2}, {0, 3}}}}(in);
  x = layers::Conv2D{.filters = 4, .kernel_regularizer = {.l1 = 0.1, .l2 = 0.2}}(x);
  x = layers::SeparableConv2D{.filters = 6,
                              .kernel_size = {3, 2},
                              .padding = "same",
                              .depth_multiplier = 2,
                              .activation = "swish",
                              .pointwise_regularizer = {.l2 = 0.5}}(x);
  x = layers::DepthwiseConv2D{.kernel_size = {2, 2}, .strides = {2, 2}, .use_bias = false}(x);
  x = layers::ReLU{.max_value = 6.0f, .negative_slope = 0.25f, .threshold = 0.5f}(x);
  x = layers::LeakyReLU{.alpha = 0.25f}(layers::ELU{.alpha = 0.5f}(layers::ReLU{}(x)));
  x = layers::Multiply{}({x, layers::Average{}({x, x})});
  x = layers::Maximum{}({x, layers::Minimum{}({x, x}), layers::Subtract{}({x, x})});
  x = layers::Softmax{}(layers::Flatten{}(layers::GlobalMaxPooling2D{.keepdims = true}(x)));
  expect_round_trip(Graph({in}, {x}, 1));
}

TEST(LayerConfig, OfSequenceLayers) {
  const auto in = layers::Input({.shape = {6}});
  auto x = layers::Embedding{.input_dim = 9, .output_dim = 4, .embeddings_regularizer = {.l1 = 0.5}}(in);
  x = layers::Permute{.dims = {2, 1}}(layers::Reshape{.target_shape = {8, -1}}(x));
  x = layers::LSTM{.units = 5, .return_sequences = true, .use_bias = false}(x);
  x = layers::GRU{.units = 4, .return_sequences = true, .recurrent_regularizer = {.l2 = 0.25}}(x);
  x = layers::LayerNormalization{.epsilon = 0.5f, .center = false}(x);
  x = layers::MultiHeadAttention{.num_heads = 2, .key_dim = 3, .value_dim = 5, .dropout = 0.25f}({x, x});
  expect_round_trip(Graph({in}, {layers::LSTM{.units = 3, .trainable = false}(x)}, 1));
}

TEST(LayerConfig, OfTheZoo) {
  for (const char* name : {"mobilenet", "transformer", "lstm_classifier"}) {
    const bool image = std::string(name) == "mobilenet";
    expect_round_trip(zoo::make(name, image ? Shape{32, 32, 3} : Shape{28, 28, 1}, 10).graph());
  }
}

TEST(LayerConfig, WhatWouldComputeSomethingElseIsRefused) {
  const auto refused = [](const char* layer, const Config& config) {
    const ConfigValue value(config);
    EXPECT_THROW(layer_from_config(layer, ConfigView(value, "test")), FileError) << layer;
  };
  refused("LSTM", {{"units", 3}, {"activation", "relu"}});
  refused("LSTM", {{"units", 3}, {"recurrent_activation", "hard_sigmoid"}});
  refused("LSTM", {{"units", 3}, {"dropout", 0.5}});
  refused("GRU", {{"units", 3}, {"reset_after", false}});
  refused("GRU", {{"units", 3}, {"reset_after", true}, {"go_backwards", true}});
  refused("Embedding", {{"input_dim", 3}, {"output_dim", 2}, {"mask_zero", true}});
  refused("Softmax", {{"axis", 1}});
  refused("ReLU", {{"max_value", -1.0}});
  refused("MultiHeadAttention", {{"num_heads", 2}, {"key_dim", 2}, {"attention_axes", ConfigList{1, 2}}});
  refused("DepthwiseConv2D", {{"kernel_size", ConfigList{3, 3}}, {"depthwise_constraint", Config{}}});
  refused("Dense", {{"units", 3}, {"kernel_regularizer", "orthogonal"}});
}

}  // namespace
}  // namespace rondo
