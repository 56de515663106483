// Layers on sequences: losses, gradients and predictions of small graphs.
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/layer_normalization.h"
#include "models/layers/masking.h"
#include "models/layers/recurrent.h"
#include "models/layers/wrappers.h"
#include "runtime/base/error.h"
#include "tests/models/gradient_fixture.h"
#include "tests/models/layer_twins.h"
#include "tests/models/sequence_twins.h"

namespace rondo::test {
namespace {

using SequenceGradientTest = GradientTest;

Twin apply(const layers::LayerNormalization& layer, const Twin& x) {
  return twin(layer(x.place), [name = layer.name, scale = layer.scale, center = layer.center,
                               epsilon = static_cast<double>(layer.epsilon), x](Evaluation& e) {
    Array y = x.value(e);
    const int64_t n = last(y);
    for (int64_t r = 0; r < y.size(); r += n) {
      double mean = 0.0, variance = 0.0;
      for (int64_t c = 0; c < n; ++c) mean += y[r + c] / static_cast<double>(n);
      for (int64_t c = 0; c < n; ++c)
        variance += (y[r + c] - mean) * (y[r + c] - mean) / static_cast<double>(n);
      for (int64_t c = 0; c < n; ++c) {
        y[r + c] = (y[r + c] - mean) / std::sqrt(variance + epsilon);
        if (scale) y[r + c] *= e.weights.at(name + "/gamma")[c];
        if (center) y[r + c] += e.weights.at(name + "/beta")[c];
      }
    }
    return y;
  });
}

// in (..., features) times kernel (features, heads, dim) or, joined, (heads, dim, features): flat rows.
Array projected(const Array& in, const Array& kernel, const Array& bias, int64_t features) {
  const int64_t units = kernel.size() / features;
  Array flat_bias = bias;
  if (bias.size() > 0) flat_bias = reshaped(bias, {units});
  return dense(reshaped(in, {in.size() / features, features}), reshaped(kernel, {features, units}),
               flat_bias);
}

Twin apply(const layers::MultiHeadAttention& layer, const std::vector<Twin>& inputs) {
  std::vector<SymbolicTensor> places;
  for (const Twin& input : inputs) places.push_back(input.place);
  return twin(layer(places), [layer = layer.name, heads = layer.num_heads, dim = layer.key_dim,
                              value_dim = layer.value_dim > 0 ? layer.value_dim : layer.key_dim,
                              has_bias = layer.use_bias, inputs](Evaluation& e) {
    const auto project = [&](const Array& in, const std::string& what, int64_t features) {
      const std::string name = layer + "/" + what;
      return projected(in, e.weights.at(name + "/kernel"), has_bias ? e.weights.at(name + "/bias") : Array{},
                       features);
    };
    const Array a = inputs[0].value(e), b = inputs[1].value(e), c = inputs.back().value(e);
    const int64_t batch = a.shape[0], queries = a.shape[1], keys = b.shape[1];
    const Array q = project(a, "query", last(a)), k = project(c, "key", last(c)),
                v = project(b, "value", last(b));
    Array mixed({batch * queries, heads * value_dim});
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < queries; ++i) {
          Array scores({1, keys});
          for (int64_t j = 0; j < keys; ++j) {
            for (int64_t d = 0; d < dim; ++d) {
              scores[j] += q[((n * queries + i) * heads + h) * dim + d] *
                           k[((n * keys + j) * heads + h) * dim + d] / std::sqrt(static_cast<double>(dim));
            }
          }
          scores = softmax(scores);
          for (int64_t d = 0; d < value_dim; ++d) {
            double& out = mixed[((n * queries + i) * heads + h) * value_dim + d];
            for (int64_t j = 0; j < keys; ++j) {
              out += scores[j] * v[((n * keys + j) * heads + h) * value_dim + d];
            }
          }
        }
      }
    }
    return reshaped(project(mixed, "attention_output", heads * value_dim), {batch, queries, last(a)});
  });
}

TEST_F(SequenceGradientTest, LayerNormalizationOfEveryKind) {
  const Twin x = input("x", {4, 6});
  Twin y = apply(layers::LayerNormalization{.name = "n0"}, x);  // of something without a gradient
  y = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "d"}, y);
  y = apply(layers::LayerNormalization{.scale = false, .name = "n1"}, y);
  y = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "e"}, y);
  const layers::LayerNormalization shared{.center = false, .name = "n2"};
  y = apply(shared, apply(shared, y));
  check({x}, apply(layers::Flatten{}, y));
}

TEST_F(SequenceGradientTest, Attention) {
  const Twin x = input("x", {4, 6});
  const Twin y = input("y", {3, 5});
  Twin z = apply(layers::MultiHeadAttention{.num_heads = 2, .key_dim = 3, .name = "self"}, {x, x});
  z = add({z, x});
  z = apply(
      layers::MultiHeadAttention{
          .num_heads = 3, .key_dim = 2, .value_dim = 4, .use_bias = false, .name = "cross"},
      {z, y});
  const Twin w = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "w"}, y);
  z = apply(layers::MultiHeadAttention{.num_heads = 1, .key_dim = 2, .name = "three"}, {z, w, y});
  check({x, y}, apply(layers::Flatten{}, z));
}

TEST_F(SequenceGradientTest, Recurrence) {
  for (const bool bias : {true, false}) {
    SCOPED_TRACE(bias);
    const Twin x = input("x", {5, 3});
    Twin y = apply(layers::LSTM{.units = 4, .return_sequences = true, .use_bias = bias, .name = "l1"}, x);
    y = apply(layers::GRU{.units = 3, .return_sequences = true, .use_bias = bias, .name = "g1"}, y);
    const Twin a = apply(layers::LSTM{.units = 3, .use_bias = bias, .name = "l2"}, y);
    const Twin b = apply(layers::GRU{.units = 3, .use_bias = bias, .name = "g2"}, y);
    check({x}, apply(layers::Dense{.units = 2, .name = "out"}, add({a, b})));
  }
}

// Keras' example of two branches with one layer.
TEST_F(SequenceGradientTest, SharedRecurrentLayerOnTwoInputs) {
  const Twin a = input("a", {4, 3});
  const Twin b = input("b", {4, 3});
  for (const bool lstm : {true, false}) {
    Twin left, right;
    if (lstm) {
      const layers::LSTM shared{.units = 4, .name = "shared_lstm"};
      left = apply(shared, a), right = apply(shared, b);
    } else {
      const layers::GRU shared{.units = 4, .name = "shared_gru"};
      left = apply(shared, a), right = apply(shared, b);
    }
    check({a, b},
          apply(layers::Dense{.units = 2, .name = lstm ? "out1" : "out2"}, concatenate({left, right})));
  }
}

TEST_F(SequenceGradientTest, RecurrenceOfTheOtherKinds) {
  const Twin x = input("x", {5, 3});
  Twin y = apply(layers::GRU{.units = 4, .return_sequences = true, .reset_after = false, .name = "g1"}, x);
  y = apply(layers::LSTM{.units = 3, .return_sequences = true, .go_backwards = true, .name = "l1"}, y);
  const layers::GRU shared{
      .units = 3, .return_sequences = true, .go_backwards = true, .reset_after = false, .name = "g2"};
  y = apply(shared, apply(shared, y));
  check({x}, apply(layers::GRU{.units = 2, .use_bias = false, .reset_after = false, .name = "g3"}, y));
}

TEST_F(SequenceGradientTest, DropoutOfInputsAndStates) {
  const Twin x = input("x", {4, 3});
  Twin y = apply(layers::LSTM{.units = 4, .return_sequences = true, .dropout = 0.4f, .name = "l1"}, x);
  y = apply(layers::LSTM{.units = 3,
                         .return_sequences = true,
                         .go_backwards = true,
                         .dropout = 0.4f,
                         .recurrent_dropout = 0.4f,
                         .name = "l2"},
            y);
  y = apply(layers::GRU{.units = 4, .return_sequences = true, .recurrent_dropout = 0.4f, .name = "g1"}, y);
  y = apply(
      layers::GRU{.units = 3, .reset_after = false, .dropout = 0.4f, .recurrent_dropout = 0.4f, .name = "g2"},
      y);
  check({x}, y);
}

// The steps' rows as they come: the function is that of the layer inside.
TEST_F(SequenceGradientTest, LayersAppliedToEachTimeStep) {
  const Twin x = input("x", {3, 4, 4, 2});
  const layers::TimeDistributed conv{
      .of =
          layers::Conv2D{
              .filters = 3, .kernel_size = {2, 2}, .activation = "tanh", .kernel_regularizer = {.l2 = 0.1}},
      .name = "conv"};
  const Twin y = twin(conv(x.place), [x](Evaluation& e) {
    const Array images = reshaped(x.value(e), {kRows * 3, 4, 4, 2});
    const Array out = conv2d(images, e.weights.at("conv/layer/kernel"), e.weights.at("conv/layer/bias"),
                             Window{.size = {2, 2}});
    return reshaped(activated(out, "tanh"), {kRows, 3, 3, 3, 3});
  });
  const layers::TimeDistributed flat{.of = layers::Flatten{}, .name = "flat"};
  const Twin z = twin(flat(y.place), [y](Evaluation& e) { return reshaped(y.value(e), {kRows, 3, 27}); });
  check({x}, apply(layers::LSTM{.units = 2, .name = "l"}, z));
}

// Two layers, one of which walks backwards, with the same weights.
TEST_F(SequenceGradientTest, BothDirectionsAreTwoLayers) {
  const auto in = layers::Input({.shape = {5, 3}});
  const layers::GRU of{.units = 4, .return_sequences = true, .reset_after = false};
  const Graph both({in}, {layers::LSTM{.units = 3}(layers::Bidirectional{.of = of}(in))}, 1);
  const auto there = of(in);
  layers::GRU turned = of;
  turned.go_backwards = true;
  const auto back = turned(in);
  EXPECT_EQ(both.count_params(), 2 * (3 * 12 + 4 * 12 + 12) + 4 * 3 * (8 + 3 + 1));
  // The backward states come in the order of the walk.
  const Graph first({in}, {there}, 1), second({in}, {back}, 1);
  const Graph pair({in}, {layers::Bidirectional{.of = of}(in)}, 1);
  std::vector<float> x = to_floats(random_array({kRows, 5, 3}, 7));
  const Batch batch{.rows = kRows, .inputs = {{{.shape = {kRows, 5, 3}}, x.data()}}, .labels = {}};
  const auto predict = [&](const Graph& graph) {
    GraphNetwork network(graph, *backend, {.nominal_rows = kRows});
    std::vector<float> out(static_cast<size_t>(kRows * graph.outputs()[0].shape().elements()));
    const std::span<float> place(out);
    network.predict({.stream = network.stream()}, batch, std::span(&place, 1));
    return out;
  };
  const auto give = [](const Graph& from, const Graph& to, size_t begin) {
    for (size_t i = 0; i < to.weights().size(); ++i)
      to.weights()[i]->host = from.weights()[begin + i]->values();
  };
  give(pair, first, 0);
  give(pair, second, 3);
  const auto joined = predict(pair), forward = predict(first), backward = predict(second);
  for (size_t i = 0; i < joined.size(); ++i) {
    const size_t row = i / 40, t = i / 8 % 5, unit = i % 8;
    const float expected =
        unit < 4 ? forward[(row * 5 + t) * 4 + unit] : backward[(row * 5 + 4 - t) * 4 + unit - 4];
    EXPECT_EQ(joined[i], expected) << i;
  }
}

// Whole numbers stand for rows: the fixture's inputs are none, so a step makes them.
TEST(SequenceLayers, EmbeddingsLearn) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const auto in = layers::Input({.shape = {3}});
  const layers::Embedding table{.input_dim = 5, .output_dim = 2, .name = "e"};
  const Graph graph({in}, {layers::Flatten{}(table(in))}, 1);
  GraphNetwork network(graph, *backend,
                       {.nominal_rows = 2, .objective = Objective{.loss = Loss::kMeanSquaredError}});
  allocate_gradients(network, *device);
  std::vector<float> numbers{0.0f, 4.0f, 4.0f, 1.0f, 0.0f, 4.0f}, labels(12, 0.0f);
  Batch batch{.rows = 2,
              .inputs = {{{.shape = {2, 3}}, numbers.data()}},
              .labels = {{{.shape = {2, 6}}, labels.data()}}};
  double sum[1] = {0.0};
  const StepState state{.inverse_batch = 0.5f};
  network.forward({.stream = network.stream(), .state = &state}, batch, Mode::kTraining, sum);
  RecordingSink sink;
  network.backward({.stream = network.stream(), .state = &state}, sink);
  const Parameter& parameter = *network.parameters().front();
  const auto* weights = parameter.value.as<const float>();
  const auto* gradients = parameter.grad.as<const float>();
  const float uses[5] = {2.0f, 1.0f, 0.0f, 0.0f, 3.0f};
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(gradients[i], uses[i / 2] * weights[i] / 6.0f, 1e-7) << i;
  numbers[1] = 5.0f;
  EXPECT_THROW(network.forward({.stream = network.stream(), .state = &state}, batch, Mode::kTraining, sum),
               InvalidArgument);
}

TEST(SequenceLayers, ShapesThatDoNotFitAreRefused) {
  const auto in = layers::Input({.shape = {4, 3}});
  EXPECT_THROW((layers::LSTM{.units = 0}(in)), InvalidArgument);
  EXPECT_THROW((layers::GRU{.units = 2}(layers::Input({.shape = {4}}))), InvalidArgument);
  EXPECT_THROW((layers::MultiHeadAttention{.num_heads = 2, .key_dim = 2}({in})), InvalidArgument);
  EXPECT_THROW((layers::MultiHeadAttention{.num_heads = 0, .key_dim = 2}({in, in})), InvalidArgument);
  EXPECT_THROW((layers::Embedding{.input_dim = 3}(in)), InvalidArgument);
  EXPECT_THROW((layers::LSTM{.units = 2, .dropout = 1.0f}(in)), InvalidArgument);
  EXPECT_THROW((layers::Masking{}(layers::Input({.shape = {3}}))), InvalidArgument);
  EXPECT_THROW((layers::TimeDistributed{.of = layers::Dropout{}}(in)), InvalidArgument);
  EXPECT_THROW((layers::Bidirectional{.of = layers::LSTM{.units = 2}, .merge_mode = "max"}(in)),
               InvalidArgument);
  EXPECT_THROW((layers::LayerNormalization{.axis = 1}(in)), InvalidArgument);
}

TEST(SequenceLayers, LossesOfMaskedOutputsAreRefused) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const auto in = layers::Input({.shape = {4, 3}});
  const auto out = layers::Dense{.units = 2}(layers::Masking{}(in));
  const Graph graph({in}, {out}, 1);
  EXPECT_THROW(GraphNetwork(graph, *backend,
                            {.nominal_rows = 2, .objective = Objective{.loss = Loss::kMeanSquaredError}}),
               Unavailable);
  const Graph used_up({in}, {layers::Flatten{}(out)}, 1);
  EXPECT_NO_THROW(GraphNetwork(used_up, *backend,
                               {.nominal_rows = 2, .objective = Objective{.loss = Loss::kMeanSquaredError}}));
}

TEST(SequenceLayers, InitialWeightsAreKeras) {
  const auto in = layers::Input({.shape = {4, 3}});
  const Graph graph({in}, {layers::LSTM{.units = 6, .name = "l"}(in)}, 3);
  const auto& weights = graph.weights();
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_EQ(weights[2]->parameter.name, "l/lstm_cell/bias");
  const std::vector<float>& bias = weights[2]->values();
  for (size_t i = 0; i < bias.size(); ++i) EXPECT_EQ(bias[i], i >= 6 && i < 12 ? 1.0f : 0.0f);
  const std::vector<float>& u = weights[1]->values();  // (6, 24): rows are orthonormal
  for (size_t a = 0; a < 6; ++a) {
    for (size_t b = 0; b < 6; ++b) {
      double dot = 0.0;
      for (size_t j = 0; j < 24; ++j)
        dot += static_cast<double>(u[a * 24 + j]) * static_cast<double>(u[b * 24 + j]);
      EXPECT_NEAR(dot, a == b ? 1.0 : 0.0, 1e-6);
    }
  }
}

}  // namespace
}  // namespace rondo::test
