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
#include "models/layers/masking.h"
#include "models/layers/merge.h"
#include "models/layers/normalization.h"
#include "models/layers/padding.h"
#include "models/layers/pooling.h"
#include "models/layers/prelu.h"
#include "models/layers/recurrent.h"
#include "models/layers/registry.h"
#include "models/layers/regularization.h"
#include "models/layers/separable.h"
#include "models/layers/shape.h"
#include "models/layers/structure.h"
#include "models/layers/wrappers.h"
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
  auto x = layers::Embedding{
      .input_dim = 9, .output_dim = 4, .mask_zero = true, .embeddings_regularizer = {.l1 = 0.5}}(in);
  x = layers::Permute{.dims = {2, 1}}(layers::Reshape{.target_shape = {8, -1}}(x));
  x = layers::LSTM{.units = 5, .return_sequences = true, .use_bias = false}(x);
  x = layers::GRU{.units = 4,
                  .return_sequences = true,
                  .recurrent_activation = "hard_sigmoid",
                  .recurrent_regularizer = {.l2 = 0.25}}(x);
  x = layers::LayerNormalization{.epsilon = 0.5f, .center = false}(x);
  x = layers::Masking{.mask_value =
                          0.25f}(layers::MaxPooling1D{.pool_size = 3, .strides = 2, .padding = "same"}(x));
  x = layers::GRU{.units = 4, .return_sequences = true, .reset_after = false, .dropout = 0.25f}(x);
  x = layers::LSTM{.units = 4,
                   .return_sequences = true,
                   .go_backwards = true,
                   .recurrent_dropout = 0.5f,
                   .zero_output_for_mask = true}(x);
  x = layers::Add{}({x, layers::AveragePooling1D{.pool_size = 1}(x)});
  x = layers::MultiHeadAttention{.num_heads = 2, .key_dim = 3, .value_dim = 5, .dropout = 0.25f}({x, x});
  x = layers::Bidirectional{.of = layers::GRU{.units = 3, .return_sequences = true}, .merge_mode = "ave"}(x);
  x = layers::TimeDistributed{.of = layers::Dense{.units = 4, .bias_constraint = Constraint::non_neg()}}(x);
  x = layers::RepeatVector{.n = 3}(layers::Bidirectional{.of = layers::LSTM{.units = 2}}(x));
  expect_round_trip(Graph({in}, {layers::LSTM{.units = 3, .trainable = false}(x)}, 1));
}

TEST(LayerConfig, OfPenaltiesAndConstraints) {
  const auto in = layers::Input({.shape = {8, 8, 3}});
  const Regularizer penalty{.l1 = 0.1, .l2 = 0.2};
  auto x = layers::Conv2D{.filters = 4,
                          .activity_regularizer = penalty,
                          .kernel_constraint = Constraint::max_norm(1.5, {0, 1, 2}),
                          .bias_constraint = Constraint::non_neg()}(in);
  x = layers::DepthwiseConv2D{.activity_regularizer = {.l2 = 0.5},
                              .depthwise_constraint = Constraint::unit_norm({0, 1})}(x);
  x = layers::SeparableConv2D{.filters = 3,
                              .activity_regularizer = {.l1 = 0.5},
                              .depthwise_constraint = Constraint::max_norm(),
                              .pointwise_constraint = Constraint::min_max_norm(0.5, 2.0, 0.25, {-1})}(x);
  x = layers::BatchNormalization{.beta_regularizer = {.l1 = 0.25},
                                 .gamma_regularizer = penalty,
                                 .beta_constraint = Constraint::max_norm(3.0),
                                 .gamma_constraint = Constraint::non_neg()}(x);
  x = layers::PReLU{
      .alpha_regularizer = penalty, .alpha_constraint = Constraint::non_neg(), .shared_axes = {1, 2}}(x);
  x = layers::PReLU{}(layers::ActivityRegularization{.l1 = 0.5, .l2 = 0.25}(x));
  x = layers::LayerNormalization{.beta_constraint = Constraint::non_neg()}(layers::Flatten{}(x));
  expect_round_trip(Graph({in}, {layers::Dense{.units = 2, .activity_regularizer = penalty}(x)}, 1));
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
  refused("LSTM", {{"units", 3}, {"recurrent_activation", "relu"}});
  refused("LSTM", {{"units", 3}, {"dropout", 1.0}});
  refused("LSTM", {{"units", 3}, {"stateful", true}});
  refused("GRU", {{"units", 3}, {"return_state", true}});
  refused("MaxPooling1D", {{"pool_size", ConfigList{2, 2}}});
  refused("Softmax", {{"axis", 1}});
  refused("ReLU", {{"max_value", -1.0}});
  refused("MultiHeadAttention", {{"num_heads", 2}, {"key_dim", 2}, {"attention_axes", ConfigList{1, 2}}});
  refused("DepthwiseConv2D", {{"kernel_size", ConfigList{3, 3}}, {"depthwise_constraint", Config{}}});
  refused("Dense", {{"units", 3}, {"kernel_constraint", "radial_constraint"}});
  refused("Dense", {{"units", 3},
                    {"kernel_constraint",
                     Config{{"class_name", "MaxNorm"}, {"config", Config{{"max_value", -1.0}}}}}});
  refused("Bidirectional", {{"layer", Config{{"class_name", "Dense"}, {"config", Config{{"units", 3}}}}},
                            {"merge_mode", "concat"}});
  refused("TimeDistributed", {{"layer", Config{{"class_name", "LSTM"}, {"config", Config{{"units", 3}}}}}});
  refused("Dense", {{"units", 3}, {"kernel_regularizer", "orthogonal"}});
}

}  // namespace
}  // namespace rondo
