// Planned memory: values that are alive at the same time never share it.
#include "models/graph/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "models/graph/graph.h"
#include "models/graph/graph_compiler.h"
#include "models/graph/graph_network.h"
#include "models/graph/weights.h"
#include "models/rondo.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo {
namespace {

struct IgnoringSink : GradSink {
  void ready(Parameter&) override {}
};

void expect_disjoint(const std::vector<Storage>& storages, int64_t arena) {
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& a = storages[i];
    if (a.first < 0) continue;
    EXPECT_EQ(a.offset % 64, 0);
    EXPECT_LE(a.offset + a.bytes, arena);
    for (size_t j = 0; j < i; ++j) {
      const Storage& b = storages[j];
      const bool together = b.first >= 0 && a.first <= b.last && b.first <= a.last;
      const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
      EXPECT_TRUE(!together || apart) << "storages " << j << " and " << i;
    }
  }
}

TEST(MemoryPlan, LiveStoragesNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Storage> storages(random() % 40);
    int64_t total = 0;
    for (Storage& storage : storages) {
      storage.bytes = static_cast<int64_t>(random() % 5000);
      storage.first = static_cast<int>(random() % 30);
      storage.last = storage.first + static_cast<int>(random() % 8);
      total += (storage.bytes + 63) / 64 * 64;
    }
    std::vector<Storage> apart = storages;
    const int64_t arena = plan_memory(storages, true);
    expect_disjoint(storages, arena);
    EXPECT_LE(arena, total);
    EXPECT_EQ(plan_memory(apart, false), total);
  }
}

TEST(MemoryPlan, ReusesMemory) {
  std::vector<Storage> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({.bytes = 1024, .first = i, .last = i + 1});
  EXPECT_EQ(plan_memory(chain, true), 2048);
}

// A random graph of images, then rows; every layer kind, values with several readers, shared layers.
SymbolicTensor random_graph(const SymbolicTensor& in, std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const char* const functions[] = {"linear", "relu", "tanh", "sigmoid", "softmax"};
  std::vector<SymbolicTensor> images{
      layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .padding = "same"}(in)};
  const layers::Conv2D shared{.filters = 8, .kernel_size = {3, 3}, .padding = "same", .activation = "tanh"};
  const size_t count = 4 + pick(8);
  for (size_t i = 0; i < count; ++i) {
    const SymbolicTensor x = images[images.size() - 1 - pick(std::min<size_t>(images.size(), 3))];
    const SymbolicTensor other = images[pick(images.size())];
    switch (pick(8)) {
      case 0:
        images.push_back(layers::Conv2D{
            .filters = 8, .kernel_size = {3, 3}, .padding = "same", .activation = functions[pick(5)]}(x));
        break;
      case 1:
        images.push_back(layers::Activation{.activation = functions[pick(5)]}(x));
        break;
      case 2:
        images.push_back(layers::Dropout{.rate = 0.3f}(x));
        break;
      case 3:
        images.push_back(layers::Add{}({x, other}));
        break;
      case 4:
        images.push_back(layers::BatchNormalization{}(x));
        break;
      case 5:
        images.push_back(layers::MaxPooling2D{.pool_size = {3, 3}, .strides = {1, 1}, .padding = "same"}(x));
        break;
      case 6:
        images.push_back(shared(x));
        break;
      default: {
        const auto joined = layers::Concatenate{}({x, other});
        images.push_back(layers::Conv2D{.filters = 8, .kernel_size = {1, 1}}(joined));
      }
    }
  }
  std::vector<SymbolicTensor> rows;
  for (const SymbolicTensor& image : images) {
    SymbolicTensor flat = pick(2) == 0 ? layers::Flatten{}(image) : layers::GlobalAveragePooling2D{}(image);
    if (pick(2) == 0) flat = layers::Activation{.activation = functions[pick(5)]}(flat);
    if (pick(3) == 0) flat = layers::Dropout{.rate = 0.3f}(flat);
    rows.push_back(layers::Dense{.units = 4, .activation = functions[pick(5)]}(flat));
  }
  return layers::Activation{.activation = "softmax"}(rows.size() > 1 ? layers::Add{}(rows) : rows[0]);
}

struct Result {
  double loss = 0.0;
  double accuracy = 0.0;
  std::vector<std::vector<float>> gradients;
  std::vector<float> prediction;
};

Result run(uint32_t seed, bool reuse, int64_t* arena) {
  constexpr int64_t kRows = 5;
  std::mt19937 random(seed);
  const auto in = layers::Input({.shape = {6, 6, 3}});
  const Graph graph({in}, {random_graph(in, random)}, seed);
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const Objective objective{.loss = Loss::kSparseCategoricalCrossentropy,
                            .metrics = {{"accuracy", Metric::kSparseCategoricalAccuracy}}};
  GraphNetwork network(graph, *backend,
                       {.nominal_rows = kRows, .objective = objective, .reuse_memory = reuse});
  allocate_gradients(network, *device);
  network.prepare(kRows, Mode::kInference);
  const Plan& plan = network.plan(kRows, Purpose::kTrain);
  expect_disjoint(plan.storages, plan.arena_bytes);
  expect_disjoint(network.plan(kRows, Purpose::kPredict).storages, network.arena().bytes());
  *arena = plan.arena_bytes;

  std::vector<float> input(kRows * 6 * 6 * 3);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>((i * 7919) % 101) / 101.0f;
  std::vector<int32_t> labels{0, 1, 2, 3, 0};
  const Batch batch{.rows = kRows,
                    .inputs = {{{.shape = {kRows, 6, 6, 3}}, input.data()}},
                    .labels = {{{.shape = {kRows}, .dtype = DType::kI32}, labels.data()}}};
  const auto poison = [&] {  // reads of memory that nobody wrote give NaN
    std::memset(network.arena().data(), 0xFF, static_cast<size_t>(network.arena().bytes()));
  };
  Result result;
  double sums[2] = {};
  poison();
  const StepState state{.seed = 3, .inverse_batch = 0.2f};
  const Execution on{.stream = network.stream(), .state = &state};
  network.forward(on, batch, Mode::kTraining, sums);
  result.loss = sums[0];
  result.accuracy = sums[1];
  IgnoringSink sink;
  network.backward(on, sink);
  for (const Parameter* parameter : network.parameters()) {
    if (parameter->trainable)
      result.gradients.push_back(read_canonical(parameter->grad, *backend, network.stream()));
  }
  poison();
  result.prediction.resize(kRows * 4);
  const std::span<float> place(result.prediction);
  network.predict({.stream = network.stream()}, batch, std::span(&place, 1));
  return result;
}

TEST(Plan, ReusedMemoryGivesTheSameBits) {
  int64_t saved = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    int64_t arena = 0;
    int64_t apart_arena = 0;
    const Result reused = run(seed, true, &arena);
    const Result apart = run(seed, false, &apart_arena);
    EXPECT_TRUE(std::isfinite(reused.loss));
    EXPECT_EQ(reused.loss, apart.loss);
    EXPECT_EQ(reused.accuracy, apart.accuracy);
    EXPECT_EQ(reused.gradients, apart.gradients);
    EXPECT_EQ(reused.prediction, apart.prediction);
    saved += apart_arena - arena;
  }
  EXPECT_GT(saved, 0);
}

TEST(Plan, ConvolutionsKeepTheirLayoutBetweenThem) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const Model cnn = zoo::cnn({28, 28, 1}, 10);
  GraphNetwork network(
      cnn.graph(), *backend,
      {.nominal_rows = 16, .objective = Objective{.loss = Loss::kSparseCategoricalCrossentropy}});
  for (const PlanStep& step : network.plan(16, Purpose::kTrain).forward) {
    EXPECT_EQ(step.name.find("reorder"), std::string::npos) << step.name;
  }
  for (const PlanStep& step : network.plan(16, Purpose::kTrain).backward) {
    EXPECT_EQ(step.name.find("reorder"), std::string::npos) << step.name;
    EXPECT_EQ(step.kernel->implementation().find("ref"), std::string::npos) << step.name;
  }
  const std::string text = network.describe(16, Mode::kTraining);
  EXPECT_NE(text.find("conv2d_1: weight gradients"), std::string::npos);
  EXPECT_NE(text.find("ready  conv2d/kernel (3, 3, 1, 32)"), std::string::npos);
}

TEST(Plan, FusesActivationsThatFollowAKernel) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const auto in = layers::Input({.shape = {4}});
  const auto out = layers::Activation{.activation = "tanh"}(layers::Dense{.units = 8}(in));
  const Graph graph({in}, {out}, 0);
  GraphNetwork network(graph, *backend, {.nominal_rows = 4});
  EXPECT_EQ(network.plan(4, Purpose::kPredict).forward.size(), 1u);
}

}  // namespace
}  // namespace rondo
