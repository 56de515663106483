// Layers on sequences: losses, gradients and predictions of small graphs.
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/layer_normalization.h"
#include "models/layers/recurrent.h"
#include "runtime/base/error.h"
#include "tests/models/gradient_fixture.h"
#include "tests/models/layer_twins.h"

namespace rondo::test {
namespace {

using SequenceGradientTest = GradientTest;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
int64_t last(const Array& x) {
  return x.shape[x.shape.rank() - 1];
}

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

// (rows, time, features) to all states (rows, time, units) or the last.
template <class Step>
Array unrolled(const Array& x, const Array& kernel, const Array& bias, int64_t units, int64_t gates,
               bool sequences, const Step& step) {
  const int64_t rows = x.shape[0], time = x.shape[1], features = x.shape[2], columns = gates * units;
  Array states({rows, time, units});
  for (int64_t n = 0; n < rows; ++n) {
    std::vector<double> h(static_cast<size_t>(units)), c(static_cast<size_t>(units));
    for (int64_t t = 0; t < time; ++t) {
      std::vector<double> z(static_cast<size_t>(columns));
      for (int64_t j = 0; j < columns; ++j) {
        double sum = bias.size() > 0 ? bias[j] : 0.0;
        for (int64_t f = 0; f < features; ++f)
          sum += x[(n * time + t) * features + f] * kernel[f * columns + j];
        z[static_cast<size_t>(j)] = sum;
      }
      step(z, h, c);
      for (int64_t k = 0; k < units; ++k) states[(n * time + t) * units + k] = h[static_cast<size_t>(k)];
    }
  }
  if (sequences) return states;
  Array out({rows, units});
  for (int64_t i = 0; i < out.size(); ++i) {
    out[i] = states[(i / units * time + time - 1) * units + i % units];
  }
  return out;
}

std::vector<double> times(const std::vector<double>& h, const Array& recurrent, const double* bias) {
  const int64_t columns = recurrent.shape[1];
  std::vector<double> out(static_cast<size_t>(columns));
  for (int64_t j = 0; j < columns; ++j) {
    double sum = bias != nullptr ? bias[j] : 0.0;
    for (size_t k = 0; k < h.size(); ++k) sum += h[k] * recurrent[static_cast<int64_t>(k) * columns + j];
    out[static_cast<size_t>(j)] = sum;
  }
  return out;
}

Twin apply(const layers::LSTM& layer, const Twin& x) {
  return twin(layer(x.place), [name = layer.name + "/lstm_cell", u = layer.units, bias = layer.use_bias,
                               sequences = layer.return_sequences, x](Evaluation& e) {
    const Array& recurrent = e.weights.at(name + "/recurrent_kernel");
    const auto units = static_cast<size_t>(u);
    return unrolled(x.value(e), e.weights.at(name + "/kernel"), bias ? e.weights.at(name + "/bias") : Array{},
                    u, 4, sequences,
                    [&](const std::vector<double>& z, std::vector<double>& h, std::vector<double>& c) {
                      const std::vector<double> y = times(h, recurrent, nullptr);
                      for (size_t k = 0; k < units; ++k) {
                        const auto gate = [&](size_t g) { return z[g * units + k] + y[g * units + k]; };
                        c[k] = sigmoid(gate(1)) * c[k] + sigmoid(gate(0)) * std::tanh(gate(2));
                        h[k] = sigmoid(gate(3)) * std::tanh(c[k]);
                      }
                    });
  });
}

Twin apply(const layers::GRU& layer, const Twin& x) {
  return twin(layer(x.place), [name = layer.name + "/gru_cell", u = layer.units, has_bias = layer.use_bias,
                               sequences = layer.return_sequences, x](Evaluation& e) {
    const Array& recurrent = e.weights.at(name + "/recurrent_kernel");
    const Array bias = has_bias ? e.weights.at(name + "/bias") : Array{};
    const auto units = static_cast<size_t>(u);
    return unrolled(x.value(e), e.weights.at(name + "/kernel"), bias, u, 3, sequences,
                    [&](const std::vector<double>& z, std::vector<double>& h, std::vector<double>&) {
                      const double* of_state = has_bias ? bias.values.data() + 3 * u : nullptr;
                      const std::vector<double> y = times(h, recurrent, of_state);
                      for (size_t k = 0; k < units; ++k) {
                        const auto gate = [&](size_t g) {
                          return sigmoid(z[g * units + k] + y[g * units + k]);
                        };
                        const double update = std::tanh(z[2 * units + k] + gate(1) * y[2 * units + k]);
                        h[k] = gate(0) * h[k] + (1.0 - gate(0)) * update;
                      }
                    });
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
              .label = {{.shape = {2, 6}}, labels.data()}};
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
  EXPECT_THROW((layers::LayerNormalization{.axis = 1}(in)), InvalidArgument);
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
