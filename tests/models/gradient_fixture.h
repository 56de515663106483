// What the gradient tests share: a small graph is run with its weights and inputs, and its loss, gradients
// and predictions are compared with float64 definitions and central differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "models/graph/config.h"
#include "models/graph/graph_compiler.h"
#include "models/graph/graph_network.h"
#include "models/graph/weights.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/models/twin.h"

namespace rondo::test {

inline constexpr int64_t kRows = 3;

inline std::vector<float> to_floats(const Array& array) {
  return {array.values.begin(), array.values.end()};
}
inline Array to_array(const std::vector<float>& values, const Shape& shape) {
  Array array(shape);
  for (size_t i = 0; i < values.size(); ++i) array.values[i] = static_cast<double>(values[i]);
  return array;
}

// Counts what it is told.
struct RecordingSink : GradSink {
  void ready(Parameter& parameter) override {
    EXPECT_TRUE(seen.insert(&parameter).second) << parameter.name << " became ready twice";
  }
  std::set<const Parameter*> seen;
};

class GradientTest : public ::testing::Test {
 protected:
  // Values that differ from 0 and 1, so that each weight matters.
  void randomize(const Graph& graph) {
    uint64_t seed = 100;
    for (Weight* weight : graph.weights()) {
      Array values = random_array(weight->shape, ++seed);
      const bool variance = weight->name == "moving_variance";
      for (double& value : values.values) value = variance ? 1.0 + 0.5 * std::abs(value) : 0.6 * value;
      weight->host = to_floats(values);
      evaluation.weights[weight->parameter.name] = to_array(weight->host, values.shape);
      if (weight->regularizer) regularizers[weight->parameter.name] = weight->regularizer;
    }
  }

  // Changes the inputs of a test, which are random otherwise.
  virtual void prepare_input(Array& /*values*/) {}

  // The factors of the network's dropout, in graph order, from the kernel itself: of a recurrent layer those
  // of its inputs and of its states, which are the same at all time steps.
  void draw_masks(const Graph& graph, const StepState& state) {
    uint32_t stream_number = 0;
    const auto draw = [&](const std::string& name, const Shape& sample) {
      const TensorDesc desc{.shape = sample.batched(kRows)};
      const auto kernel = backend->dropout({.desc = desc, .rate = 0.4f, .stream = stream_number++});
      std::vector<float> ones(static_cast<size_t>(desc.elements()), 1.0f);
      std::vector<float> factors(ones.size());
      const Buffer scratch = device->allocate(kernel->scratch_bytes() + 64);
      const auto stream = device->make_stream();
      kernel->forward({*stream, scratch.data(), &state}, {desc, ones.data()}, {desc, factors.data()});
      evaluation.dropout_masks[name] = to_array(factors, desc.shape);
    };
    for (const auto& node : graph.nodes()) {
      const std::string& name = node->layer->name();
      if (node->layer->class_name() == "Dropout") draw(name, node->output);
      if (node->layer->class_name() != "LSTM" && node->layer->class_name() != "GRU") continue;
      const Config config = node->layer->config();
      const auto has = [&](const char* rate) { return *config.find(rate)->as<double>() > 0.0; };
      const Shape in = node->inputs[0].shape(), out = node->output;
      if (has("dropout")) draw(name + "/inputs", {in[1]});
      if (has("recurrent_dropout")) draw(name + "/states", {out[out.rank() - 1]});
    }
  }

  // Summed over the rows, each with the whole penalty.
  double oracle_loss(const Twin& out, const Array& label, Loss loss) {
    evaluation.done.clear();
    double penalty = 0.0;
    for (const auto& [name, regularizer] : regularizers) {
      for (const double w : evaluation.weights.at(name).values) {
        penalty += regularizer.l1 * std::abs(w) + regularizer.l2 * w * w;
      }
    }
    const double extra = extra_loss ? extra_loss(evaluation) : 0.0;
    return test::loss(out.value(evaluation), label, loss, false) + kRows * penalty + extra;
  }

  void check(const std::vector<Twin>& inputs, const Twin& out, Loss loss = Loss::kMeanSquaredError,
             bool reuse_memory = true) {
    std::vector<SymbolicTensor> places;
    for (const Twin& in : inputs) places.push_back(in.place);
    Graph graph(places, {out.place}, 1);
    randomize(graph);
    const StepState state{.seed = 5, .step = 2, .first_row = 4, .inverse_batch = 0.25f};
    draw_masks(graph, state);

    GraphNetwork network(
        graph, *backend,
        {.nominal_rows = kRows, .objective = Objective{.loss = loss}, .reuse_memory = reuse_memory});
    allocate_gradients(network, *device);
    std::vector<std::vector<float>> data;
    Batch batch;
    batch.rows = kRows;
    for (const SymbolicTensor& place : places) {
      Array values = random_array(place.shape().batched(kRows), 7 + data.size());
      prepare_input(values);
      evaluation.inputs[place.node()->layer->name()] = values;
      data.push_back(to_floats(values));
      batch.inputs.push_back({{.shape = values.shape}, data.back().data()});
    }
    const Array label = make_label(out.place.shape(), loss);
    std::vector<float> label_floats = to_floats(label);
    std::vector<int32_t> classes(label.values.begin(), label.values.end());
    const bool sparse = loss == Loss::kSparseCategoricalCrossentropy;
    batch.labels = {{{.shape = label.shape, .dtype = sparse ? DType::kI32 : DType::kF32},
                     sparse ? static_cast<void*>(classes.data()) : label_floats.data()}};

    std::memset(network.arena().data(), 0xFF, static_cast<size_t>(network.arena().bytes()));
    double sum[1] = {0.0};
    network.forward({.stream = network.stream(), .state = &state}, batch, Mode::kTraining, sum);
    const double expected = oracle_loss(out, label, loss);
    EXPECT_NEAR(sum[0], expected, 1e-5 * std::max(1.0, std::abs(expected)));
    RecordingSink sink;
    network.backward({.stream = network.stream(), .state = &state}, sink);
    check_gradients(network, out, label, loss, sink);
    check_prediction(network, batch, out);
  }

  static Array make_label(const Shape& output, Loss loss) {
    if (loss == Loss::kSparseCategoricalCrossentropy) {
      Array label(Shape{kRows});
      for (int64_t i = 0; i < kRows; ++i) label[i] = static_cast<double>(i % output[0]);
      return label;
    }
    Array label = random_array(output.batched(kRows), 99);
    for (double& value : label.values) value = std::abs(value);  // rows need not sum to 1
    return label;
  }

  // Central differences in every weight.
  void check_gradients(GraphNetwork& network, const Twin& out, const Array& label, Loss loss,
                       const RecordingSink& sink) {
    for (const Parameter* parameter : network.parameters()) {
      if (!parameter->trainable) {
        EXPECT_FALSE(sink.seen.contains(parameter)) << parameter->name;
        continue;
      }
      EXPECT_TRUE(sink.seen.contains(parameter)) << parameter->name << " never became ready";
      const Array at = evaluation.weights.at(parameter->name);
      const Array got = to_array(read_canonical(parameter->grad, *backend, network.stream()), at.shape);
      Array expected = numeric_gradient(
          [&](const Array& weight) {
            evaluation.weights[parameter->name] = weight;
            return oracle_loss(out, label, loss);
          },
          at);
      evaluation.weights[parameter->name] = at;
      for (double& value : expected.values) value *= 0.25;  // inverse_batch
      EXPECT_LE(relative_error(got, expected, 1e-2), 2e-4) << parameter->name;
    }
  }

  // In inference: dropout and batch statistics are off; only graphs without the latter are compared.
  void check_prediction(GraphNetwork& network, const Batch& batch, const Twin& out) {
    evaluation.dropout_masks.clear();
    evaluation.done.clear();
    for (const auto& [name, weight] : evaluation.weights) {
      if (name.ends_with("moving_mean")) return;
    }
    const Array expected = out.value(evaluation);
    std::vector<float> got(expected.values.size());
    const std::span<float> place(got);
    network.predict({.stream = network.stream()}, batch, std::span(&place, 1));
    EXPECT_LE(relative_error(to_array(got, expected.shape), expected), 1e-5);
  }

  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<KernelBackend> backend = make_cpu_backend(*device);
  Evaluation evaluation;
  std::map<std::string, Regularizer> regularizers;     // by parameter name
  std::function<double(Evaluation&)> extra_loss = {};  // summed over the rows, like the loss
};

}  // namespace rondo::test
