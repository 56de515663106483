// Training in 16 bits on simulated GPUs: near what float32 gives, the same bits every time, and steps that
// overflow are skipped by all ranks together.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "models/graph/graph_network.h"
#include "models/layers/advanced_activations.h"
#include "models/layers/layer_normalization.h"
#include "models/layers/padding.h"
#include "models/layers/separable.h"
#include "models/layers/shape.h"
#include "models/model.h"
#include "models/rondo.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/array_source.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/gpu_loader.h"
#include "runtime/train/callbacks/terminate_on_nan.h"

namespace rondo {
namespace {

using testing::Each;
using testing::HasSubstr;

class Steps : public Callback {
 public:
  std::string name() const override { return "steps"; }
  bool decides() const override { return false; }
  Decision on_step_end(const StepReport& report) override {
    losses.push_back(report.loss);
    skipped.push_back(report.skipped);
    scales.push_back(report.loss_scale);
    return Decision::kContinue;
  }
  std::vector<double> losses, scales;
  std::vector<bool> skipped;
};

struct Seen {
  std::vector<double> losses, scales;
  std::vector<bool> skipped;
  std::vector<float> predictions;
  std::vector<std::vector<float>> weights;
  Logs evaluation;
  bool operator==(const Seen&) const = default;
};

Model mlp() {
  return Sequential({layers::Input({.shape = {12, 12, 1}}), layers::Flatten{},
                     layers::Dense{.units = 32, .activation = "relu"}, layers::Dropout{.rate = 0.1f},
                     layers::Dense{.units = 24, .activation = "tanh"},
                     layers::Dense{.units = 4, .activation = "softmax"}});
}
// Every layer that computes in 16 bits, and a branch.
Model cnn() {
  const auto in = layers::Input({.shape = {12, 12, 1}});
  auto x = layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .padding = "same", .activation = "relu"}(in);
  x = layers::MaxPooling2D{}(x);
  x = layers::BatchNormalization{}(x);
  const auto a = layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .padding = "same"}(x);
  x = layers::Add{}({layers::Activation{.activation = "relu"}(a), x});
  x = layers::AveragePooling2D{}(layers::Concatenate{}({x, a}));
  return Model({in}, {layers::Dense{.units = 4, .activation = "softmax"}(layers::Flatten{}(x))});
}

// Layers of 16 bits around two that compute in float32 only.
Model mixture() {
  const auto in = layers::Input({.shape = {12, 12, 1}});
  auto x = layers::ZeroPadding2D{}(layers::Conv2D{.filters = 6, .kernel_size = {3, 3}}(in));
  x = layers::SeparableConv2D{.filters = 8, .kernel_size = {3, 3}, .depth_multiplier = 2}(x);
  x = layers::LeakyReLU{}(layers::LayerNormalization{}(x));
  x = layers::ReLU{.max_value = 6.0f}(layers::DepthwiseConv2D{.kernel_size = {3, 3}}(x));
  x = layers::Permute{.dims = {3, 1, 2}}(x);
  x = layers::Dense{.units = 4}(layers::Flatten{}(layers::Reshape{.target_shape = {8, 64}}(x)));
  return Model({in}, {layers::Softmax{}(x)});
}

// The rows of an image look at each other.
Model attention() {
  const auto in = layers::Input({.shape = {12, 12, 1}});
  const auto rows = layers::Reshape{.target_shape = {12, 12}}(in);
  const auto seen =
      layers::MultiHeadAttention{.num_heads = 2, .key_dim = 6, .name = "mha"}(std::vector{rows, rows});
  const auto x = layers::Flatten{}(layers::Add{}(std::vector{rows, seen}));
  return Model({in}, {layers::Dense{.units = 4, .activation = "softmax"}(x)});
}

const SyntheticSource& training_data() {
  static const SyntheticSource data({.size = 80, .input_shape = {12, 12, 1}, .classes = 4, .seed = 2});
  return data;
}

struct Training {
  Model (*model)() = mlp;
  Precision precision = Precision::kF32;
  LossScaling scaling = {};
  int64_t epochs = 4;
  const Source* data = &training_data();
  OptimizerConfig optimizer = SGD{.learning_rate = 0.02, .momentum = 0.9};
};

GpuModule& gpus() {
  static const FoundGpus found = find_gpus();
  if (found.module == nullptr) throw std::runtime_error(found.reason);
  return *found.module;
}

Seen train(Communicator& comm, KernelBackend& backend, const Training& run) {
  Model own = run.model();
  Model model = multi_gpu_model(own, comm, backend);
  model.compile({.optimizer = run.optimizer,
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .buckets = {.first_bytes = 512, .bytes = 4096},
                 .precision = run.precision,
                 .loss_scaling = run.scaling});
  Steps steps;
  TerminateOnNaN nan;
  const History history = model.fit(
      *run.data,
      {.batch_size = 16, .epochs = run.epochs, .shuffle = false, .seed = 5, .callbacks = {&steps, &nan}});
  EXPECT_EQ(history.end.stopped_by, "");
  return {steps.losses,        steps.scales,
          steps.skipped,       model.predict(training_data(), 16),
          model.get_weights(), model.evaluate(training_data(), 16)};
}

// What each rank sees.
std::vector<Seen> train_on(int ranks, const Training& run) {
  std::vector<Seen> seen(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& host) {
    const auto device = gpus().make_device(host.rank());
    const auto backend = gpus().make_backend(*device);
    const auto comm = gpus().make_communicator(host, *device, {});
    seen[static_cast<size_t>(host.rank())] = train(*comm, *backend, run);
  });
  return seen;
}

// Relative to the losses, where those are above 1.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0.0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]) / std::max(1.0, b[i]));
  return most;
}

struct Near {
  Model (*model)();
  double bf16, f16, bf16_at_first, f16_at_first;  // difference of the losses of 20 steps, and of 3
};

// A decision of relu or of a maximum that rounding turns over sets two runs of the cnn apart, in any type.
TEST(Mixed, TwentyStepsStayNearFloat32) {
  for (const auto& [model, bf16, f16, bf16_at_first, f16_at_first] :
       {Near{mlp, 0.01, 0.0015, 0.005, 0.0005}, Near{cnn, 0.04, 0.04, 0.02, 0.002},
        Near{mixture, 0.04, 0.04, 0.02, 0.002}, Near{attention, 0.04, 0.04, 0.02, 0.002}}) {
    const Seen exact = train_on(1, {.model = model})[0];
    ASSERT_EQ(exact.losses.size(), 20u);
    ASSERT_LT(exact.losses.back(), exact.losses.front() * 0.6) << "it does not learn";
    const Seen brain = train_on(1, {.model = model, .precision = Precision::kBF16})[0];
    const Seen half = train_on(1, {.model = model, .precision = Precision::kF16})[0];
    EXPECT_LT(largest_difference(brain.losses, exact.losses), bf16);
    EXPECT_LT(largest_difference(half.losses, exact.losses), f16);
    const auto first = [](const Seen& seen) {
      return std::vector<double>(seen.losses.begin(), seen.losses.begin() + 3);
    };
    EXPECT_LT(largest_difference(first(brain), first(exact)), bf16_at_first);
    EXPECT_LT(largest_difference(first(half), first(exact)), f16_at_first);
    EXPECT_GT(largest_difference(brain.losses, exact.losses), 1e-5) << "it computes in float32";
    EXPECT_GT(largest_difference(half.losses, exact.losses), 1e-7) << "it computes in float32";
    EXPECT_THAT(half.skipped, Each(false));
    EXPECT_THAT(half.scales, Each(32768.0));
    EXPECT_THAT(brain.scales, Each(1.0));
    const double evaluated = exact.evaluation[0].second;
    EXPECT_NEAR(brain.evaluation[0].second, evaluated, 0.02 * std::max(1.0, evaluated));
  }
}

TEST(Mixed, PredictionsAreFloat32NearThoseOfTheSameWeights) {
  std::vector<float> exact, brain;
  run_ranks(1, [&](Communicator& host) {
    const auto device = gpus().make_device(0);
    const auto backend = gpus().make_backend(*device);
    const auto comm = gpus().make_communicator(host, *device, {});
    Model own = cnn();
    Model model = multi_gpu_model(own, *comm, *backend);
    exact = model.predict(training_data(), 16);
    model.compile({.loss = "sparse_categorical_crossentropy", .precision = Precision::kBF16});
    brain = model.predict(training_data(), 16);
  });
  ASSERT_EQ(brain.size(), exact.size());
  EXPECT_NE(brain, exact);
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(brain[i], exact[i], 0.02) << i;
  for (size_t row = 0; row < brain.size(); row += 4) {  // softmax is float32
    EXPECT_NEAR(brain[row] + brain[row + 1] + brain[row + 2] + brain[row + 3], 1.0f, 1e-6f);
  }
}

TEST(Mixed, AttentionProjectsIn16Bits) {
  run_ranks(1, [&](Communicator& host) {
    const auto device = gpus().make_device(0);
    const auto backend = gpus().make_backend(*device);
    const auto comm = gpus().make_communicator(host, *device, {});
    Model own = attention();
    Model model = multi_gpu_model(own, *comm, *backend);
    model.compile({.loss = "sparse_categorical_crossentropy", .precision = Precision::kBF16});
    const std::string plan = model.network(16).describe(16, Mode::kTraining);
    for (const char* step : {"mha query: to float32", "mha key: to float32", "mha value: to float32"}) {
      EXPECT_THAT(plan, HasSubstr(step));
    }
  });
}

TEST(Mixed, TwoDevicesTrainAsOneAndTwiceTheSame) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    const Training run{.precision = precision};
    const Seen one = train_on(1, run)[0];
    const auto two = train_on(2, run);
    EXPECT_EQ(two[0].weights, two[1].weights);
    EXPECT_EQ(two[0].losses, two[1].losses);
    // Gradients of two halves of a batch are each rounded for themselves.
    EXPECT_LT(largest_difference(two[0].losses, one.losses), precision == Precision::kBF16 ? 0.02 : 0.003);
    EXPECT_EQ(train_on(2, run), two);
  }
  const Training run{.model = cnn, .precision = Precision::kBF16, .epochs = 1};
  EXPECT_EQ(train_on(1, run), train_on(1, run));
}

TEST(Mixed, AnAbsurdScaleIsHalvedUntilItServes) {
  const Seen seen = train_on(1, {.precision = Precision::kF16, .scaling = {.initial = 0x1p24f}})[0];
  EXPECT_TRUE(seen.skipped.front());
  EXPECT_FALSE(seen.skipped.back());
  EXPECT_LT(seen.scales.back(), 0x1p22);
  for (size_t i = 1; i < seen.scales.size(); ++i) {
    EXPECT_EQ(seen.scales[i], seen.skipped[i - 1] ? seen.scales[i - 1] / 2.0 : seen.scales[i - 1]) << i;
  }
  EXPECT_LT(seen.losses.back(), seen.losses.front());
}

// Samples of a class by themselves, one of which no 16 bits can hold.
ArraySource data_with(float extreme, size_t row) {
  std::vector<float> input;
  std::vector<int32_t> labels;
  ArrayData data;
  data.name = "extreme";
  data.input_shape = {12, 12, 1};
  for (int64_t i = 0; i < 80; ++i) {
    for (int64_t k = 0; k < 144; ++k) input.push_back(static_cast<float>((i * 7 + k * 3) % 11) * 0.1f);
    labels.push_back(static_cast<int32_t>(i % 4));
  }
  input[row * 144] = extreme;
  data.input = std::move(input);
  data.labels = std::move(labels);
  data.classes = 4;
  return ArraySource(std::move(data));
}

TEST(Mixed, TheRankThatOverflowsStopsTheStepOnAll) {
  // Row 45 is in the third batch, in the second rank's half.
  const ArraySource data = data_with(1e30f, 45);
  const auto seen = train_on(2, {.precision = Precision::kF16, .epochs = 1, .data = &data});
  EXPECT_EQ(seen[0].skipped, (std::vector<bool>{false, false, true, false, false}));
  EXPECT_EQ(seen[1].skipped, seen[0].skipped);
  EXPECT_EQ(seen[1].scales, seen[0].scales);
  EXPECT_EQ(seen[1].weights, seen[0].weights);
  for (const auto& weight : seen[0].weights) {
    EXPECT_THAT(weight, Each(testing::Truly([](float w) { return std::isfinite(w); })));
  }
}

TEST(Mixed, ARunWithoutAGoodStepEndsWithOneMessage) {
  std::vector<std::string> errors(2);
  const ArraySource small = [] {
    ArrayData only;
    only.name = "infinite";
    only.input_shape = {12, 12, 1};
    only.input = std::vector<float>(144 * 16, std::numeric_limits<float>::infinity());
    only.labels = std::vector<int32_t>(16, 1);
    only.classes = 4;
    return ArraySource(std::move(only));
  }();
  const Training run{.precision = Precision::kF16,
                     .scaling = {.initial = 2.0f},
                     .epochs = 30,
                     .data = &small,
                     .optimizer = SGD{}};
  run_ranks(2, [&](Communicator& host) {
    const auto device = gpus().make_device(host.rank());
    const auto backend = gpus().make_backend(*device);
    const auto comm = gpus().make_communicator(host, *device, {});
    try {
      train(*comm, *backend, run);
    } catch (const NumericError& error) {
      errors[static_cast<size_t>(host.rank())] = error.what();
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("gradients are not finite even with a loss scale of 1"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(Mixed, TheHostRefuses16Bits) {
  Model model = mlp();
  model.compile({.loss = "sparse_categorical_crossentropy", .precision = Precision::kBF16});
  try {
    model.fit(training_data(), {.batch_size = 16});
    FAIL() << "it trained";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), HasSubstr("precision bf16: the host computes in f32"));
  }
  EXPECT_THROW(model.compile({.loss = "sparse_categorical_crossentropy", .precision = Precision::kF16}),
               Unavailable);
  model.compile({.loss = "sparse_categorical_crossentropy", .precision = Precision::kTF32});
  model.fit(training_data(), {.batch_size = 16});
}

// Two inputs and two outputs, weights in time steps, a metric that counts them: the same work on devices,
// whose steps are replayed, as on the host.
struct HeadsSeen {
  std::vector<std::pair<std::string, std::vector<double>>> history;
  Logs evaluation;
  std::vector<std::vector<float>> predictions;
  bool operator==(const HeadsSeen&) const = default;
};

HeadsSeen train_heads(Communicator& comm, KernelBackend& backend, Precision precision) {
  std::vector<float> steps(40 * 4 * 3), numbers(40 * 2), wanted(40 * 4), weights(40 * 4);
  std::vector<int32_t> kinds(40);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<float>(i * 37 % 101) / 101.0f - 0.5f;
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 53 % 89) / 89.0f - 0.5f;
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = steps[3 * i] - 0.5f * steps[3 * i + 1];
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 3);
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<int32_t>(numbers[2 * i] > 0.0f);
  const ArraySource data(ArraysData{
      .inputs = {{.shape = {4, 3}, .values = steps}, {.shape = {2}, .values = numbers}},
      .labels = {{.shape = {4, 1}, .values = wanted}, {.shape = {}, .values = kinds, .classes = 2}}});

  const auto a = layers::Input({.shape = {4, 3}}), b = layers::Input({.shape = {2}});
  const auto inner = layers::Dense{.units = 8, .activation = "tanh"}(a);
  const auto trunk = layers::Concatenate{}({layers::Flatten{}(inner), b});
  Model own({a, b}, {layers::Dense{.units = 1, .name = "each"}(inner),
                     layers::Dense{.units = 2, .activation = "softmax", .name = "kind"}(trunk)});
  Model model = multi_gpu_model(own, comm, backend);
  model.compile({.optimizer = Adam{.learning_rate = 0.01},
                 .loss = std::vector<LossConfig>{"mse", "sparse_categorical_crossentropy"},
                 .loss_weights = {1.0, 0.5},
                 .metrics = std::vector<std::vector<MetricConfig>>{{"mae"}, {"accuracy"}},
                 .weighted_metrics = std::vector<std::vector<MetricConfig>>{{"mae", "auc"}, {}},
                 .precision = precision});
  const SampleWeights by_output(std::vector<std::vector<float>>{weights, {}});
  const History history =
      model.fit(data, {.batch_size = 8, .epochs = 4, .shuffle = false, .sample_weight = by_output});
  return {history.history, model.evaluate(data, 16, by_output), model.predict_outputs(data, 16)};
}

TEST(SeveralOutputs, TrainOnDevicesAsOnTheHost) {
  HeadsSeen host;
  run_ranks(1, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    host = train_heads(comm, *backend, Precision::kF32);
  });
  const auto on_devices = [](int ranks, Precision precision) {
    HeadsSeen seen;
    run_ranks(ranks, [&](Communicator& rank) {
      const auto device = gpus().make_device(rank.rank());
      const auto backend = gpus().make_backend(*device);
      const auto comm = gpus().make_communicator(rank, *device, {});
      HeadsSeen own = train_heads(*comm, *backend, precision);
      if (rank.rank() == 0) seen = std::move(own);
    });
    return seen;
  };
  const auto expect_near = [&](const HeadsSeen& seen, double tolerance) {
    ASSERT_EQ(seen.history.size(), host.history.size());
    for (size_t i = 0; i < host.history.size(); ++i) {
      EXPECT_EQ(seen.history[i].first, host.history[i].first);
      EXPECT_NEAR(seen.history[i].second.back(), host.history[i].second.back(), tolerance)
          << host.history[i].first;
    }
    for (size_t i = 0; i < host.evaluation.size(); ++i) {
      EXPECT_NEAR(seen.evaluation[i].second, host.evaluation[i].second, tolerance)
          << host.evaluation[i].first;
    }
    for (size_t i = 0; i < host.predictions.size(); ++i) {
      EXPECT_THAT(seen.predictions[i],
                  testing::Pointwise(testing::FloatNear(static_cast<float>(tolerance)), host.predictions[i]));
    }
  };
  EXPECT_LT(host.history[0].second.back(), 0.8 * host.history[0].second.front());
  for (const int ranks : {1, 2}) {
    const HeadsSeen seen = on_devices(ranks, Precision::kF32);
    expect_near(seen, 2e-5);
    EXPECT_EQ(on_devices(ranks, Precision::kF32), seen);
    expect_near(on_devices(ranks, Precision::kF16), 2e-2);
  }
}

}  // namespace
}  // namespace rondo
