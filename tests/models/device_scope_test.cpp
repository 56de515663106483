// Device parallelism on groups of a host's cores: the results are those of one device, to the bit.
#include "models/graph/device_scope.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "models/graph/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/array_source.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/models/two_devices.h"

namespace rondo {
namespace {

using test::descend;
using test::Trained;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct CoreGroups {
  explicit CoreGroups(int count) {
    for (int i = 0; i < count; ++i) {
      devices.push_back(make_cpu_device(1));
      backends.push_back(make_cpu_backend(*devices.back()));
      all.push_back(backends.back().get());
    }
  }
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<KernelBackend>> backends;
  std::vector<KernelBackend*> all;
};

TEST(DeviceScope, NamesAreKeras) {
  const auto number = [](const char* name) {
    const auto scope = device_scope(name);
    return scoped_device();
  };
  EXPECT_EQ(number("/gpu:1"), 1);
  EXPECT_EQ(number("/GPU:0"), 0);
  EXPECT_EQ(number("/cpu:3"), 3);
  EXPECT_EQ(number("/device:GPU:12"), 12);
  EXPECT_EQ(number("/device:cpu:0"), 0);
  EXPECT_EQ(number("gpu:2"), 2);
  for (const char* wrong : {"", "/gpu", "/gpu:", "/gpu:x", "/gpu:1x", "/gpu:-1", "/tpu:0", "1", "/gpu: 1",
                            "/gpu:99999999999", "/device:1", "//gpu:0"}) {
    EXPECT_THAT([&] { number(wrong); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("names no device"), HasSubstr("/gpu:1"))))
        << wrong;
  }
  EXPECT_THROW(static_cast<void>(device_scope(-1)), InvalidArgument);
  EXPECT_EQ(scoped_device(), -1);
}

TEST(DeviceScope, TheInnermostCountsOnItsThreadOnly) {
  const auto outer = device_scope("/gpu:1");
  {
    const auto inner = device_scope(2);
    EXPECT_EQ(scoped_device(), 2);
    std::thread([] { EXPECT_EQ(scoped_device(), -1); }).join();
  }
  EXPECT_EQ(scoped_device(), 1);
  try {
    const auto inner = device_scope(3);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(scoped_device(), 1);
}

TEST(DeviceScope, TooFewDevicesNamesTheWantedAndTheAvailable) {
  const CoreGroups groups(2);
  const Graph graph = test::shared_lstm(0, 2);
  EXPECT_EQ(graph.devices(), 3);
  EXPECT_THAT([&] { descend(graph, groups.all); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("LSTM layer \"lstm\" is called on device 2"),
                                                   HasSubstr("the devices 0 to 2"), HasSubstr("has 2: 0 ("),
                                                   HasSubstr("devices_per_rank"))));
}

TEST(DeviceScope, TheSharedLstmGivesTheBitsOfOneDevice) {
  const CoreGroups groups(2);
  const Trained one = descend(test::shared_lstm(0, 0), groups.all);
  for (const double loss : one.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_NE(one.losses.front(), one.losses.back());
  EXPECT_EQ(descend(test::shared_lstm(0, 1), groups.all), one);
  EXPECT_EQ(descend(test::shared_lstm(1, 0), groups.all), one);
  EXPECT_EQ(descend(test::shared_lstm(1, 1), groups.all), one);
  EXPECT_EQ(descend(test::frozen_branch(1), groups.all), descend(test::frozen_branch(0), groups.all));
  EXPECT_EQ(descend(test::read_and_overwritten(1), groups.all),
            descend(test::read_and_overwritten(0), groups.all));
}

void expect_near(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b,
                 double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t t = 0; t < a.size(); ++t) {
    ASSERT_EQ(a[t].size(), b[t].size());
    for (size_t i = 0; i < a[t].size(); ++i) {
      ASSERT_NEAR(a[t][i], b[t][i], tolerance * (1.0 + std::abs(b[t][i])))
          << "tensor " << t << ", element " << i;
    }
  }
}

// Gradients of a value with several readers on each of several devices are added there first.
TEST(DeviceScope, AnyPlacementGivesTheResultOfOneDevice) {
  const CoreGroups groups(3);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Trained one = descend(test::mixed_branches(1, seed), groups.all, 2);
    const Graph spread = test::mixed_branches(3, seed);
    const Trained several = descend(spread, groups.all, 2);
    expect_near(several.gradients, one.gradients, 1e-5);
    expect_near(several.weights, one.weights, 1e-5);
    EXPECT_NEAR(several.losses[0], one.losses[0], 1e-6);
    EXPECT_NEAR(several.losses[1], one.losses[1], 1e-5);
    expect_near({several.prediction}, {one.prediction}, 1e-5);
    if (seed % 4 == 0) {
      EXPECT_EQ(descend(test::mixed_branches(3, seed), groups.all, 2), several) << "run again";
      EXPECT_EQ(descend(test::mixed_branches(3, seed), groups.all, 2, false), several) << "memory not shared";
    }
  }
}

// The steps of a plan that copy from device to device.
int transfers(const std::vector<PlanStep>& steps) {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), [](const PlanStep& step) {
    return step.name.find("from device") != std::string::npos;
  }));
}

TEST(DeviceScope, ManyReadersOfADeviceShareOneCopy) {
  const CoreGroups groups(2);
  const auto in = layers::Input({.shape = {5}});
  const auto x = layers::Dense{.units = 4}(in);
  std::vector<SymbolicTensor> outputs;
  for (int i = 0; i < 3; ++i) {
    const auto scope = device_scope(1);
    outputs.push_back(layers::Activation{.activation = "tanh"}(x));
  }
  const Graph graph({in}, {layers::Dense{.units = 1, .activation = "sigmoid"}(layers::Add{}(outputs))}, 1);
  GraphNetwork network(graph, *groups.all[0],
                       {.nominal_rows = 4,
                        .objective = Objective{.loss = Loss::kBinaryCrossentropy},
                        .others = {groups.all[1]}});
  const Plan& plan = network.plan(4, Purpose::kTrain);
  EXPECT_EQ(transfers(plan.forward), 1 + 3) << "one of the value there, one back of each result";
  EXPECT_EQ(transfers(plan.backward), 1 + 1) << network.describe(4, Mode::kTraining);
  EXPECT_THAT(network.describe(4, Mode::kTraining), HasSubstr(" on device 1"));
}

TEST(DeviceScope, WithoutScopesNothingIsAdded) {
  const CoreGroups groups(2);
  const Graph graph = test::shared_lstm(0, 0);
  const auto steps = [&](const std::vector<KernelBackend*>& others) {
    GraphNetwork network(
        graph, *groups.all[0],
        {.nominal_rows = 4, .objective = Objective{.loss = Loss::kBinaryCrossentropy}, .others = others});
    const Plan& plan = network.plan(4, Purpose::kTrain);
    EXPECT_TRUE(plan.others.empty() && plan.signals.empty());
    EXPECT_TRUE(network.replay_memory().has_value());
    return network.describe(4, Mode::kTraining);
  };
  EXPECT_EQ(steps({}), steps({groups.all[1]}));
}

// A branch of one device never waits for the other's: what it waits for comes behind it.
TEST(DeviceScope, BranchesDoNotWaitForEachOther) {
  const CoreGroups groups(2);
  for (const bool swapped : {false, true}) {
    const Graph graph = swapped ? test::shared_lstm(1, 0) : test::shared_lstm(0, 1);
    GraphNetwork network(graph, *groups.all[0],
                         {.nominal_rows = 4,
                          .objective = Objective{.loss = Loss::kBinaryCrossentropy},
                          .others = {groups.all[1]}});
    const Plan& plan = network.plan(4, Purpose::kTrain);
    for (const auto* steps : {&plan.forward, &plan.backward}) {
      bool waited = false;
      int own = 0;
      for (const PlanStep& step : *steps) {
        if (step.device != 0) continue;
        waited |= !step.waits.empty();
        if (step.name.starts_with("lstm") && step.kernel != nullptr &&
            step.name.find("add") == std::string::npos) {
          ++own;
          EXPECT_FALSE(waited) << step.name << "\n" << network.describe(4, Mode::kTraining);
        }
      }
      EXPECT_GT(own, 0);
    }
  }
}

class Throws final : public GradSink {
  void ready(Parameter&) override { throw PeerError("a peer has gone"); }
};

// What one device meets is told by the pass, and the other devices end with it.
TEST(DeviceScope, AFailureOnOneDeviceEndsThePass) {
  const CoreGroups groups(2);
  const Graph graph = test::shared_lstm(0, 1);
  GraphNetwork network(graph, *groups.all[0],
                       {.nominal_rows = 4,
                        .objective = Objective{.loss = Loss::kBinaryCrossentropy},
                        .others = {groups.all[1]}});
  allocate_gradients(network, *groups.devices[0]);
  std::vector<float> x(4 * 14 * 24, 0.5f), labels{0, 1, 0, 1};
  const Tensor input{{.shape = {4, 14, 24}}, x.data()};
  const Batch batch{.rows = 4, .inputs = {input, input}, .labels = {{{.shape = {4, 1}}, labels.data()}}};
  double loss = 0.0;
  const StepState state{.inverse_batch = 0.25f};
  const Execution on{.stream = network.stream(), .state = &state};
  Plan& plan = network.plan(4, Purpose::kTrain);
  for (const int device : {0, 1}) {
    const auto step = std::find_if(plan.forward.begin(), plan.forward.end(),
                                   [&](const PlanStep& each) { return each.device == device; });
    const auto run = std::exchange(step->run, [](const Execution&) { throw DeviceError("it failed"); });
    EXPECT_THAT(
        [&] {
          network.forward(on, batch, Mode::kTraining, {&loss, 1});
        },
        ThrowsMessage<DeviceError>(HasSubstr("it failed")));
    step->run = run;
  }
  network.forward(on, batch, Mode::kTraining, {&loss, 1});
  Throws throws;
  EXPECT_THROW(network.backward(on, throws), PeerError);
  network.forward(on, batch, Mode::kTraining, {&loss, 1});
  test::GradientSink sink;
  network.backward(on, sink);
  EXPECT_EQ(std::set<std::string>(sink.order.begin(), sink.order.end()).size(), 5u);
  EXPECT_EQ(sink.order.size(), 5u);
}

// A model without a world divides the cores of the process; a scope around the call of a model moves it
// whole.
TEST(DeviceScope, ModelsTrainPredictAndSaveAsOnOneDevice) {
  const SyntheticSource data({.size = 24, .input_shape = {6, 6, 2}, .classes = 3, .seed = 2});
  struct Seen {
    std::vector<double> losses;
    Logs evaluation;
    std::vector<float> prediction;
    std::vector<std::vector<float>> weights;
    std::string json;
  };
  const auto train = [&](int first, int second, int outer) {
    const auto x = layers::Input({.shape = {6, 6, 2}});
    const auto part = [&] {
      const auto scope = device_scope(first);
      return Sequential(
          {layers::Input({.shape = {6, 6, 2}}),
           layers::Conv2D{.filters = 3, .kernel_size = {3, 3}, .use_bias = false},
           layers::BatchNormalization{}, layers::Flatten{}, layers::Dense{.units = 5, .activation = "tanh"}},
          {.name = "part"});
    }();
    SymbolicTensor left = part(x), right;
    {
      const auto scope = device_scope(outer);
      right = part(x);
    }
    SymbolicTensor out;
    {
      const auto scope = device_scope(second);
      out = layers::Dense{.units = 3, .activation = "softmax"}(layers::Concatenate{}({left, right}));
    }
    Model model({x}, {out}, {.seed = 4});
    model.compile({.optimizer = Adam{}, .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
    const History history = model.fit(data, {.batch_size = 8, .epochs = 2});
    return Seen{history.at("loss"), model.evaluate(data, 8), model.predict(data, 8), model.get_weights(),
                model.to_json()};
  };
  const Seen one = train(0, 0, 0), several = train(1, 0, 0), more = train(0, 1, 2);
  for (const Seen* other : {&several, &more}) {
    ASSERT_EQ(other->losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(other->losses[i], one.losses[i], 1e-6);
    EXPECT_NEAR(other->evaluation[0].second, one.evaluation[0].second, 1e-6);
    for (size_t i = 0; i < one.prediction.size(); ++i) {
      ASSERT_NEAR(other->prediction[i], one.prediction[i], 1e-5);
    }
    for (size_t w = 0; w < one.weights.size(); ++w) {
      for (size_t i = 0; i < one.weights[w].size(); ++i) {
        ASSERT_NEAR(other->weights[w][i], one.weights[w][i], 1e-5) << w;
      }
    }
    EXPECT_EQ(other->json, one.json) << "Keras saves no devices";
  }
}

TEST(DeviceScope, TwoRanksOfTwoCoreGroupsTrainAsOneOfOne) {
  const SyntheticSource data({.size = 26, .input_shape = {6, 5}, .classes = 3, .seed = 2});
  const auto train = [&](int ranks, int second) {
    std::vector<double> losses;
    run_ranks(ranks, [&](Communicator& comm) {
      const CoreGroups groups(2);
      const auto in = layers::Input({.shape = {6, 5}});
      const layers::LSTM shared{.units = 4};
      const auto left = shared(in);
      SymbolicTensor right;
      {
        const auto scope = device_scope(second);
        right = shared(layers::Dropout{.rate = 0.2f}(in));
      }
      const auto both = layers::Concatenate{}({left, right});
      Model own({in}, {layers::Dense{.units = 3, .activation = "softmax"}(both)}, {.seed = 7});
      Model model = multi_gpu_model(own, comm, groups.all);
      model.compile({.optimizer = Adam{}, .loss = "sparse_categorical_crossentropy"});
      const History history = model.fit(data, {.batch_size = 8, .epochs = 3, .seed = 5});
      if (comm.rank() == 0) losses = history.at("loss");
    });
    return losses;
  };
  const std::vector<double> one = train(1, 0), several = train(2, 1);
  ASSERT_EQ(one.size(), 3u);
  EXPECT_LT(one.back(), one.front());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(several[i], one[i], 1e-6);
}

// Two losses on two devices, and a shared layer of which one call leads to an output without a loss.
TEST(DeviceScope, SeveralOutputsTrainAsOnOneDevice) {
  constexpr size_t kSamples = 10;
  std::vector<float> x(kSamples * 4), y(kSamples * 3);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101.0f - 0.5f;
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i * 53 % 89) / 89.0f;
  const ArraySource data(ArraysData{
      .inputs = {{.shape = {4}, .values = x}},
      .labels = {{.shape = {3}, .values = y}, {.shape = {3}, .values = y}, {.shape = {3}, .values = y}}});
  struct Seen {
    std::vector<std::pair<std::string, std::vector<double>>> history;
    std::vector<std::vector<float>> predictions, weights;
  };
  const auto train = [&](int first, int second) {
    const auto in = layers::Input({.shape = {4}});
    const layers::Dense shared{.units = 3, .activation = "tanh"};
    SymbolicTensor a, b, c;
    {
      const auto scope = device_scope(first);
      a = shared(layers::Dense{.units = 5, .activation = "tanh"}(in));
    }
    {
      const auto scope = device_scope(second);
      b = layers::Dense{.units = 3, .kernel_regularizer = {.l2 = 0.01}}(a);
      c = shared(layers::Dense{.units = 5}(b));
    }
    Model model({in}, {a, b, c}, {.seed = 4});
    model.compile({.optimizer = SGD{.learning_rate = 0.1},
                   .loss = std::vector<LossConfig>{"mae", "mse", ""},
                   .loss_weights = {0.5, 2.0, 1.0},
                   .metrics = {"mae"}});
    const History history = model.fit(data, {.batch_size = 4, .epochs = 3});
    return Seen{history.history, model.predict_outputs(data, 4), model.get_weights()};
  };
  const Seen one = train(0, 0);
  for (const Seen& other : {train(0, 1), train(1, 0), train(1, 1)}) {
    ASSERT_EQ(other.history.size(), one.history.size());
    for (size_t i = 0; i < one.history.size(); ++i) {
      EXPECT_NEAR(other.history[i].second.back(), one.history[i].second.back(), 1e-6) << one.history[i].first;
    }
    for (size_t w = 0; w < one.weights.size(); ++w) {
      for (size_t i = 0; i < one.weights[w].size(); ++i) {
        ASSERT_NEAR(other.weights[w][i], one.weights[w][i], 1e-6) << w;
      }
    }
    for (size_t o = 0; o < one.predictions.size(); ++o) {
      for (size_t i = 0; i < one.predictions[o].size(); ++i) {
        ASSERT_NEAR(other.predictions[o][i], one.predictions[o][i], 1e-6) << o;
      }
    }
  }
}

}  // namespace
}  // namespace rondo
