// Plans of residual networks on simulated GPUs: what normalizes, adds and cuts off does so in one kernel, and
// the training is the host's.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "models/graph/graph_network.h"
#include "models/model.h"
#include "models/rondo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/gpu_loader.h"

namespace rondo {
namespace {

using layers::Activation;
using layers::Add;
using layers::BatchNormalization;
using layers::Conv2D;

SymbolicTensor relu(const SymbolicTensor& x) {
  return Activation{.activation = "relu"}(x);
}
SymbolicTensor conv(const SymbolicTensor& x, int64_t filters, int64_t stride = 1) {
  return Conv2D{.filters = filters, .kernel_size = {3, 3}, .strides = {stride, stride}, .padding = "same"}(x);
}
SymbolicTensor norm(const SymbolicTensor& x) {
  return BatchNormalization{.beta_initializer = Initializer::uniform(-0.5, 0.5),
                            .gamma_initializer = Initializer::uniform(0.5, 1.5)}(x);
}

Model residual() {
  const auto in = layers::Input({.shape = {6, 6, 2}});
  const auto stem = relu(norm(conv(in, 4)));                              // norm, relu
  const auto same = relu(Add{}(std::vector{norm(conv(stem, 4)), stem}));  // norm, add, relu
  const auto down = relu(Add{}(std::vector{norm(conv(same, 6, 2)), norm(conv(same, 6, 2))}));  // the same
  const auto read_twice = norm(down);                                                          // neither
  const auto three = relu(Add{}(std::vector{read_twice, norm(down), down}));                   // neither
  const auto sum_read_twice = Add{}(std::vector{norm(three), read_twice});                     // neither
  const auto last = Add{}(std::vector{relu(sum_read_twice), sum_read_twice});
  const auto out = layers::Dense{.units = 3, .activation = "softmax"}(layers::Flatten{}(last));
  return Model({in}, {out}, {.seed = 3});
}

struct Seen {
  std::vector<double> losses;
  std::vector<float> predictions;
  std::string plan;
};

Seen train(Device& device, KernelBackend& backend, Precision precision = Precision::kF32) {
  const auto comm = make_self_communicator(device);
  const SyntheticSource data({.size = 24, .input_shape = {6, 6, 2}, .classes = 3, .seed = 2});
  Model own = residual();
  Model model = multi_gpu_model(own, *comm, backend);
  model.compile({.optimizer = SGD{.learning_rate = 0.05},
                 .loss = "sparse_categorical_crossentropy",
                 .precision = precision});
  Seen seen;
  const History history = model.fit(data, {.batch_size = 8, .epochs = 4, .seed = 5});
  seen.losses = history.at("loss");
  seen.predictions = model.predict(data, 8);
  seen.plan = model.network(8).describe(8, Mode::kTraining);
  return seen;
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(FusedNorm, PlansOfResidualNetworksTakeIt) {
  const FoundGpus found = find_gpus();
  ASSERT_NE(found.module, nullptr) << found.reason;
  const auto gpu = found.module->make_device(0);
  const auto gpu_backend = found.module->make_backend(*gpu);
  const Seen fused = train(*gpu, *gpu_backend);
  const Seen narrow = train(*gpu, *gpu_backend, Precision::kBF16);
  for (const Seen* seen : {&fused, &narrow}) {  // each forward and backward
    EXPECT_EQ(count(seen->plan, "[loop: norm, relu]"), 2) << seen->plan;
    EXPECT_EQ(count(seen->plan, "[loop: norm, add, relu]"), 4) << seen->plan;
  }

  const auto cpu = make_cpu_device(1);
  const auto cpu_backend = make_cpu_backend(*cpu);
  const Seen host = train(*cpu, *cpu_backend);
  EXPECT_EQ(count(host.plan, "norm, "), 0) << host.plan;
  ASSERT_LT(host.losses.back(), host.losses.front()) << "it does not learn";
  for (size_t i = 0; i < host.losses.size(); ++i) {
    EXPECT_NEAR(fused.losses[i], host.losses[i], 1e-4);
    EXPECT_NEAR(narrow.losses[i], host.losses[i], 0.15);  // of a loss that falls from 2.7 to 0.2
  }
  ASSERT_EQ(fused.predictions.size(), host.predictions.size());
  for (size_t i = 0; i < host.predictions.size(); ++i) {
    ASSERT_NEAR(fused.predictions[i], host.predictions[i], 1e-3) << i;
  }
}

// Masks, dropout in recurrent layers, constraints, penalties on results, and what else has kernels of its
// own.
Model sequences() {
  const auto in = layers::Input({.shape = {6}});
  auto x = layers::Embedding{.input_dim = 5, .output_dim = 4, .mask_zero = true}(in);
  x = layers::PReLU{.alpha_initializer = Initializer::constant(0.25), .shared_axes = {1}}(x);
  const layers::GRU gru{.units = 3,
                        .return_sequences = true,
                        .reset_after = false,
                        .dropout = 0.25f,
                        .recurrent_dropout = 0.25f};
  x = layers::Bidirectional{.of = gru}(x);
  x = layers::MultiHeadAttention{
      .num_heads = 2, .key_dim = 3, .kernel_constraint = Constraint::max_norm(0.6, {0, 1})}({x, x});
  const auto state = layers::LSTM{.units = 6,
                                  .activity_regularizer = {.l1 = 0.01, .l2 = 0.02},
                                  .recurrent_constraint = Constraint::unit_norm()}(x);
  x = layers::Add{}({x, layers::RepeatVector{.n = 6}(state)});
  x = layers::TimeDistributed{.of = layers::Dense{.units = 5, .bias_constraint = Constraint::non_neg()}}(x);
  x = layers::GlobalAveragePooling1D{}(x);
  const layers::Dense last{
      .units = 3, .activation = "softmax", .kernel_constraint = Constraint::min_max_norm(0.5, 0.9, 0.5)};
  return Model({in}, {last(x)}, {.seed = 3});
}

Seen train_sequences(Device& device, KernelBackend& backend) {
  std::vector<float> words;
  std::vector<int32_t> labels;
  for (int row = 0; row < 24; ++row) {
    for (int t = 0; t < 6; ++t)
      words.push_back(t > 0 && t + row % 4 > 5 ? 0.0f : static_cast<float>(1 + (row * 7 + t) % 4));
    labels.push_back((row * 7) % 3);
  }
  const ArraySource data({.input_shape = {6}, .input = words, .labels = labels});
  const auto comm = make_self_communicator(device);
  Model own = sequences();
  Model model = multi_gpu_model(own, *comm, backend);
  model.compile({.optimizer = SGD{.learning_rate = 0.2}, .loss = "sparse_categorical_crossentropy"});
  Seen seen;
  const History history = model.fit(data, {.batch_size = 8, .epochs = 4, .seed = 5});
  seen.losses = history.at("loss");
  seen.predictions = model.predict(data, 8);
  return seen;
}

TEST(SequenceLayers, TrainAsOnTheHost) {
  const FoundGpus found = find_gpus();
  ASSERT_NE(found.module, nullptr) << found.reason;
  const auto gpu = found.module->make_device(0);
  const auto gpu_backend = found.module->make_backend(*gpu);
  const auto cpu = make_cpu_device(1);
  const auto cpu_backend = make_cpu_backend(*cpu);
  const Seen device = train_sequences(*gpu, *gpu_backend), host = train_sequences(*cpu, *cpu_backend);
  for (size_t i = 0; i < host.losses.size(); ++i) EXPECT_NEAR(device.losses[i], host.losses[i], 1e-4) << i;
  ASSERT_EQ(device.predictions.size(), host.predictions.size());
  for (size_t i = 0; i < host.predictions.size(); ++i) {
    ASSERT_NEAR(device.predictions[i], host.predictions[i], 1e-3) << i;
  }
}

}  // namespace
}  // namespace rondo
