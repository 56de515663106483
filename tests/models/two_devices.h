// Networks over one device or several, on any backend, as tests compare them.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "models/graph/device_scope.h"
#include "models/graph/graph.h"
#include "models/graph/graph_compiler.h"
#include "models/graph/graph_network.h"
#include "models/graph/weights.h"
#include "models/rondo.h"
#include "runtime/kernels/backend.h"

namespace rondo::test {

// The Keras FAQ's example of device parallelism: one LSTM encodes two inputs, each call on a device of its
// own.
inline Graph shared_lstm(int first, int second) {
  const auto a = layers::Input({.shape = {14, 24}}), b = layers::Input({.shape = {14, 24}});
  const layers::LSTM lstm{.units = 8};
  SymbolicTensor encoded_a, encoded_b;
  {
    const auto scope = device_scope(first);
    encoded_a = lstm(a);
  }
  {
    const auto scope = device_scope(second);
    encoded_b = lstm(b);
  }
  const auto merged = layers::Concatenate{}({encoded_a, encoded_b});
  return Graph({a, b}, {layers::Dense{.units = 1, .activation = "sigmoid"}(merged)}, 5);
}

// A frozen layer on `second`, which has nothing to do in the backward pass.
inline Graph frozen_branch(int second) {
  const auto in = layers::Input({.shape = {6}});
  const LayerHandle frozen(layers::Dense{.units = 5, .activation = "tanh"});
  SymbolicTensor x;
  {
    const auto scope = device_scope(second);
    x = frozen(in);
  }
  frozen.layer()->set_trainable(false);
  return Graph({in}, {layers::Dense{.units = 1, .activation = "sigmoid"}(x)}, 2);
}

// A value that `second` reads, and that the first device would overwrite behind it.
inline Graph read_and_overwritten(int second) {
  const auto in = layers::Input({.shape = {6}});
  const auto x = layers::Dense{.units = 5}(in);
  SymbolicTensor there;
  {
    const auto scope = device_scope(second);
    there = layers::Dropout{.rate = 0.3f}(x);
  }
  const auto here = layers::Dropout{.rate = 0.3f}(x);
  const auto both = layers::Concatenate{}({there, here});
  return Graph({in}, {layers::Dense{.units = 1, .activation = "sigmoid"}(both)}, 2);
}

struct GradientSink : GradSink {
  void ready(Parameter& parameter) override { order.push_back(parameter.name); }
  std::vector<std::string> order;
};

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;  // of all steps
  std::vector<std::vector<float>> weights;    // behind them
  std::vector<float> prediction;
  bool operator==(const Trained&) const = default;
};

// Steps of plain gradient descent on made-up rows.
inline Trained descend(const Graph& graph, std::span<KernelBackend* const> backends, int steps = 3,
                       bool reuse_memory = true) {
  constexpr int64_t kRows = 6;
  KernelBackend& backend = *backends.front();
  Device& device = backend.device();
  GraphNetwork network(graph, backend,
                       {.nominal_rows = kRows,
                        .objective = Objective{.loss = Loss::kBinaryCrossentropy},
                        .reuse_memory = reuse_memory,
                        .others = {backends.begin() + 1, backends.end()}});
  allocate_gradients(network, device);
  Stream& stream = network.stream();
  std::mt19937 random(3);
  std::vector<Buffer> memory;
  const auto on_device = [&](const TensorDesc& desc, const std::vector<float>& values) {
    memory.push_back(device.allocate(desc.bytes()));
    stream.copy(memory.back().data(), values.data(), desc.bytes());
    stream.synchronize();
    return Tensor{desc, memory.back().data()};
  };
  Batch batch;
  batch.rows = kRows;
  for (const SymbolicTensor& input : graph.inputs()) {
    const TensorDesc desc{.shape = input.shape().batched(kRows)};
    std::vector<float> values(static_cast<size_t>(desc.elements()));
    for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    batch.inputs.push_back(on_device(desc, values));
  }
  batch.labels = {on_device({.shape = {kRows, 1}}, {0, 1, 1, 0, 1, 0})};
  StepState state{.seed = 3, .inverse_batch = 1.0f / kRows};
  const Buffer device_state = device.allocate(sizeof(StepState)), sums = device.allocate(sizeof(double));
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    state.step = step;
    stream.copy(device_state.data(), &state, sizeof(StepState));
    const Execution on{.stream = stream, .state = device_state.as<const StepState>()};
    network.forward(on, batch, Mode::kTraining, {sums.as<double>(), 1});
    GradientSink sink;
    network.backward(on, sink);
    double loss = 0.0;
    stream.copy(&loss, sums.data(), sizeof(double));
    stream.synchronize();
    trained.losses.push_back(loss);
    for (Parameter* parameter : network.parameters()) {
      if (!parameter->trainable) continue;
      auto values = read_canonical(parameter->value, backend, stream);
      trained.gradients.push_back(read_canonical(parameter->grad, backend, stream));
      for (size_t i = 0; i < values.size(); ++i) values[i] -= 0.5f * trained.gradients.back()[i];
      write_canonical(values, parameter->value, backend, stream);
    }
  }
  for (const Parameter* parameter : network.parameters()) {
    trained.weights.push_back(read_canonical(parameter->value, backend, stream));
  }
  trained.prediction.resize(static_cast<size_t>(kRows * network.output_shapes().front().elements()));
  const std::span<float> place(trained.prediction);
  network.predict({.stream = stream}, batch, std::span(&place, 1));
  stream.synchronize();
  return trained;
}

// Most kinds of layers in three branches, with values and weights that are read on several devices, and a
// shared batch normalization that every device updates. Devices count modulo `devices`.
inline Graph mixed_branches(int devices, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto in = layers::Input({.shape = {6, 6, 3}});
  const layers::Conv2D shared{
      .filters = 4, .kernel_size = {3, 3}, .padding = "same", .kernel_regularizer = {.l2 = 0.01}};
  const layers::BatchNormalization norm;
  std::vector<SymbolicTensor> images{layers::Conv2D{.filters = 3, .kernel_size = {1, 1}}(in)};
  std::vector<SymbolicTensor> rows;
  for (int i = 0; i < 7; ++i) {
    const auto scope = device_scope(static_cast<int>(random() % 8) % devices);
    const SymbolicTensor x = images[random() % images.size()];
    SymbolicTensor y = x;
    switch (random() % 5) {
      case 0:
        y = layers::Activation{.activation = "relu"}(layers::Dense{.units = 3}(x));
        break;
      case 1:
        y = layers::Dropout{.rate = 0.2f}(x);
        break;
      case 2:
        y = layers::Add{}({x, images[random() % images.size()]});
        break;
      case 3:
        y = layers::Activation{.activation = "tanh"}(x);
        break;
      default:
        y = layers::Conv2D{.filters = 3, .kernel_size = {1, 1}, .activation = "tanh"}(x);
    }
    images.push_back(y);
    if (random() % 2 == 0) rows.push_back(layers::Flatten{}(norm(shared(y))));
  }
  const auto scope = device_scope(static_cast<int>(random() % 8) % devices);
  rows.push_back(layers::Flatten{}(shared(images.back())));
  const auto merged = layers::Concatenate{}(rows);
  return Graph({in}, {layers::Dense{.units = 1, .activation = "sigmoid"}(merged)}, seed);
}

}  // namespace rondo::test
