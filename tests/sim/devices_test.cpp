// Ranks of several simulated GPUs: layers placed by device_scope, with the waits between devices checked by
// the double. The results are those of one device, whatever the delays of the streams.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/launch/binding.h"
#include "runtime/launch/gpu_connect.h"
#include "runtime/launch/gpu_loader.h"
#include "tests/models/two_devices.h"
#include "tests/sim/control.h"

namespace rondo {
namespace {

using test::descend;
using test::Trained;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const CoreSet& one_core() {
  static const CoreSet core{{0}};
  return core;
}

// As World binds a rank.
Binding bind(int devices, HostPlace place = {}, const BindOptions& more = {}) {
  BindOptions options = more;
  options.device = DeviceChoice::kCuda;
  options.devices_per_rank = devices;
  return bind_device(options, one_core(), std::span(&one_core(), 1), place);
}

std::vector<KernelBackend*> backends_of(const Binding& binding) {
  std::vector<KernelBackend*> all{binding.backend.get()};
  for (const FurtherDevice& further : binding.further) all.push_back(further.backend.get());
  return all;
}

void seed_delays(uint64_t seed) {
  static const FoundGpus found = find_gpus();
  const void* inside = *reinterpret_cast<void* const*>(found.module);  // its table of virtual functions
  Dl_info info;
  if (dladdr(inside, &info) == 0) throw std::runtime_error("the simulated module is not loaded");
  void* symbol = dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), "rondo_sim_seed_delays");
  reinterpret_cast<void (*)(uint64_t)>(symbol)(seed);
}

Trained run(const Graph& graph, int devices, int steps = 3) {
  const Binding binding = bind(devices);
  return descend(graph, backends_of(binding), steps);
}

TEST(DeviceSets, TheSharedLstmGivesTheBitsOfOneDevice) {
  const Trained one = run(test::shared_lstm(0, 0), 1);
  EXPECT_NE(one.losses.front(), one.losses.back());
  EXPECT_EQ(run(test::shared_lstm(0, 1), 2), one);
  EXPECT_EQ(run(test::shared_lstm(1, 0), 2), one);
}

TEST(DeviceSets, APassEndsOnAllDevices) {
  EXPECT_EQ(run(test::frozen_branch(1), 2), run(test::frozen_branch(0), 1));
}

TEST(DeviceSets, WhatAnotherDeviceReadsIsNotOverwritten) {
  EXPECT_EQ(run(test::read_and_overwritten(1), 2), run(test::read_and_overwritten(0), 1));
}

TEST(DeviceSets, AnyPlacementGivesTheResultOfOneDevice) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Trained one = run(test::mixed_branches(1, seed), 1, 2);
    const Trained several = run(test::mixed_branches(3, seed), 3, 2);
    for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(several.losses[i], one.losses[i], 1e-5);
    for (size_t w = 0; w < one.weights.size(); ++w) {
      for (size_t i = 0; i < one.weights[w].size(); ++i) {
        ASSERT_NEAR(several.weights[w][i], one.weights[w][i], 1e-5 * (1.0 + std::abs(one.weights[w][i])));
      }
    }
  }
}

TEST(DeviceSets, SameBitsWithFiftySeedsOfDelays) {
  const Trained first = run(test::mixed_branches(2, 1), 2);
  for (uint64_t seed = 1; seed < 50; ++seed) {
    seed_delays(seed);
    ASSERT_EQ(run(test::mixed_branches(2, 1), 2), first) << "seed " << seed;
  }
}

// Two branches of one input with a shared LSTM, dropout and statistics.
Model branched(int second) {
  const auto in = layers::Input({.shape = {6, 5}});
  const layers::LSTM shared{.units = 4};
  const auto left = shared(in);
  SymbolicTensor right;
  {
    const auto scope = device_scope(second);
    right = layers::BatchNormalization{}(shared(layers::Dropout{.rate = 0.2f}(in)));
  }
  const auto merged = layers::Concatenate{}({left, right});
  return Model({in}, {layers::Dense{.units = 3, .activation = "softmax"}(merged)}, {.seed = 7});
}

struct Seen {
  std::vector<double> losses;
  Logs evaluation;
  std::vector<float> prediction;
  std::vector<std::vector<float>> weights;
  bool operator==(const Seen&) const = default;
};

// What rank 0 sees of a model's life over two ranks.
Seen train(int devices, int second, bool oversubscribe = false) {
  static const SyntheticSource data({.size = 26, .input_shape = {6, 5}, .classes = 3, .seed = 2});
  Seen seen;
  run_ranks(2, [&](Communicator& host) {
    const BindOptions options{.oversubscribe_gpus = oversubscribe, .devices_per_rank = devices};
    Binding binding = bind(devices, {host.rank(), 2}, options);
    const auto comm = connect_devices(host, binding, options);
    Model own = branched(second);
    Model model = multi_gpu_model(own, *comm, backends_of(binding));
    model.compile({.optimizer = SGD{.learning_rate = 0.1},
                   .loss = "sparse_categorical_crossentropy",
                   .metrics = {"accuracy"}});
    const History history = model.fit(data, {.batch_size = 8, .epochs = 2, .seed = 5});
    const Seen mine{history.at("loss"), model.evaluate(data, 8), model.predict(data, 8), model.get_weights()};
    if (host.rank() == 0) seen = mine;
  });
  return seen;
}

TEST(DeviceSets, TwoRanksOfTwoDevicesTrainAsTwoOfOne) {
  const Seen one = train(1, 0), two = train(2, 1);
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(two.losses[i], one.losses[i], 1e-6);
  EXPECT_NEAR(two.evaluation[0].second, one.evaluation[0].second, 1e-6);
  for (size_t i = 0; i < one.prediction.size(); ++i) ASSERT_NEAR(two.prediction[i], one.prediction[i], 1e-6);
  for (size_t w = 0; w < one.weights.size(); ++w) {
    for (size_t i = 0; i < one.weights[w].size(); ++i) {
      ASSERT_NEAR(two.weights[w][i], one.weights[w][i], 1e-6);
    }
  }
  EXPECT_EQ(train(2, 1), two) << "run again";
  EXPECT_EQ(train(2, 1, true), two) << "gradients through the host's memory";
}

TEST(DeviceSets, RanksTakeGpusInARow) {
  const auto chosen = [](int devices, HostPlace place, int visible, const char* gpus = "") {
    return choose_gpus({.gpus = gpus, .devices_per_rank = devices}, place, visible);
  };
  EXPECT_EQ(chosen(2, {0, 2}, 4), (std::vector{0, 1}));
  EXPECT_EQ(chosen(2, {1, 2}, 4), (std::vector{2, 3}));
  EXPECT_EQ(chosen(2, {1, 2}, 4, "3,1,0,2"), (std::vector{0, 2}));
  EXPECT_EQ(chosen(2, {1, 2}, 2), (std::vector{0, 1})) << "each rank sees only its own";
  EXPECT_THAT(
      [&] {
        chosen(3, {0, 2}, 4);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("2 ranks on this host with 3 devices each want 6 GPUs"),
                                           HasSubstr("there are 4"))));
  const auto too_many = static_cast<int>(find_gpus().gpus.size()) + 1;
  EXPECT_THAT([&] { bind(too_many); },
              ThrowsMessage<InvalidArgument>(HasSubstr(std::to_string(too_many) + " GPUs, but there are ")));
  EXPECT_THROW(bind(0), InvalidArgument);
  const Binding binding = bind(2, {1, 2});
  EXPECT_EQ(binding.further.size(), 1u);
  EXPECT_NE(binding.further[0].gpu.uuid, binding.gpu.uuid);
}

// Whichever place of a set it is in: NCCL's ring would hang, and a copy would race.
TEST(DeviceSets, AGpuIsBoundOnce) {
  run_ranks(2, [](Communicator& host) {
    const BindOptions options{.gpus = host.rank() == 0 ? "0,1" : "1,2", .devices_per_rank = 2};
    Binding binding = bind(2, {0, 1}, options);
    EXPECT_THAT([&] { connect_devices(host, binding, options); },
                ThrowsMessage<MismatchError>(HasSubstr("share one GPU")));
  });
}

TEST(DeviceSets, TooFewDevicesAreNamed) {
  EXPECT_THAT([] { run(test::shared_lstm(0, 1), 1); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("is called on device 1"), HasSubstr("has 1: 0 ("), HasSubstr("GPU 0"))));
}

}  // namespace
}  // namespace rondo
