// Training on simulated GPUs, with ranks as threads: whatever the random delays of their streams, the same
// bits; and within rounding what the host computes.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/rondo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/gpu_loader.h"
#include "tests/sim/control.h"

namespace rondo {
namespace {

using Weights = std::vector<std::vector<float>>;

struct Seen {
  std::vector<double> losses;
  std::vector<float> predictions;
  Weights weights;
  bool operator==(const Seen&) const = default;
};

// Every kind of kernel that keeps something from forward to backward.
Model model_under_test() {
  return Sequential({layers::Input({.shape = {8, 8, 2}}),
                     layers::Conv2D{.filters = 4, .kernel_size = {3, 3}, .activation = "tanh"},
                     layers::BatchNormalization{}, layers::AveragePooling2D{}, layers::Dropout{.rate = 0.2f},
                     layers::Flatten{}, layers::Dense{.units = 12, .activation = "tanh"},
                     layers::Dense{.units = 3, .activation = "softmax"}});
}

class Losses : public Callback {
 public:
  std::string name() const override { return "losses"; }
  bool decides() const override { return false; }
  Decision on_step_end(const StepReport& report) override {
    values.push_back(report.loss);
    return Decision::kContinue;
  }
  std::vector<double> values;
};

Seen train(Communicator& comm, KernelBackend& backend) {
  static const SyntheticSource data({.size = 20, .input_shape = {8, 8, 2}, .classes = 3, .seed = 2});
  Model own = model_under_test();
  Model model = multi_gpu_model(own, comm, backend);
  model.compile({.optimizer = Adam{},
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .buckets = {.first_bytes = 512, .bytes = 1024}});
  Losses losses;
  model.fit(data, {.batch_size = 6, .epochs = 2, .seed = 5, .callbacks = {&losses}});
  return {losses.values, model.predict(data, 16), model.get_weights()};
}

// What rank 0 sees.
Seen train_on_gpus(int ranks) {
  static const FoundGpus found = find_gpus();
  if (found.module == nullptr) throw std::runtime_error(found.reason);
  Seen seen;
  run_ranks(ranks, [&](Communicator& host) {
    const auto device = found.module->make_device(host.rank());
    const auto backend = found.module->make_backend(*device);
    const auto comm = found.module->make_communicator(host, *device, {});
    Seen own = train(*comm, *backend);
    if (host.rank() == 0) seen = std::move(own);
  });
  return seen;
}

Seen train_on_host(int ranks) {
  Seen seen;
  run_ranks(ranks, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    Seen own = train(comm, *backend);
    if (comm.rank() == 0) seen = std::move(own);
  });
  return seen;
}

// A function of the module that the tests run on, wherever it was loaded from.
template <class Function>
Function* control(const char* name) {
  static const FoundGpus found = find_gpus();
  const void* inside = *reinterpret_cast<void* const*>(found.module);  // its table of virtual functions
  Dl_info info;
  if (dladdr(inside, &info) == 0) throw std::runtime_error("the simulated module is not loaded");
  void* symbol = dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), name);
  if (symbol == nullptr) throw std::runtime_error(std::string("the simulated module has no ") + name);
  return reinterpret_cast<Function*>(symbol);
}

TEST(SimulatedTraining, SameBitsWithTwoHundredSeedsOfDelays) {
  const Seen first = train_on_gpus(2);
  for (uint64_t seed = 1; seed < 200; ++seed) {
    control<void(uint64_t)>("rondo_sim_seed_delays")(seed);
    ASSERT_EQ(train_on_gpus(2), first) << "seed " << seed;
  }
}

TEST(SimulatedTraining, IsTheHostsWithinRounding) {
  for (const int ranks : {1, 2, 8}) {  // batch normalization sees a rank's rows only: as many on hosts
    const Seen host = train_on_host(ranks);
    const Seen gpus = train_on_gpus(ranks);
    ASSERT_EQ(gpus.losses.size(), host.losses.size());
    for (size_t i = 0; i < host.losses.size(); ++i) {
      EXPECT_NEAR(gpus.losses[i], host.losses[i], 2e-5) << ranks << " devices, step " << i;
    }
    ASSERT_EQ(gpus.predictions.size(), host.predictions.size());
    for (size_t i = 0; i < host.predictions.size(); ++i) {
      ASSERT_NEAR(gpus.predictions[i], host.predictions[i], 1e-4) << ranks << " devices, prediction " << i;
    }
  }
}

TEST(SimulatedTraining, LeavesNothingBehind) {
  train_on_gpus(2);
  EXPECT_STREQ(control<const char*()>("rondo_sim_leftovers")(), "");
}

// What ten steps and an epoch's end cost, out of the difference between two runs.
sim::Counters counters_of_epochs(int epochs) {
  static const FoundGpus found = find_gpus();
  const auto count = [] {
    sim::Counters counters;
    control<void(sim::Counters*)>("rondo_sim_counters")(&counters);
    return counters;
  };
  const sim::Counters before = count();
  run_ranks(1, [&](Communicator& host) {
    const auto device = found.module->make_device(0);
    const auto backend = found.module->make_backend(*device);
    const auto comm = found.module->make_communicator(host, *device, {});
    static const SyntheticSource data({.size = 60, .input_shape = {8, 8, 2}, .classes = 3, .seed = 2});
    Model own = model_under_test();
    Model model = multi_gpu_model(own, *comm, *backend);
    model.compile({.optimizer = Adam{}, .loss = "sparse_categorical_crossentropy", .metrics = {}});
    model.fit(data, {.batch_size = 6, .epochs = epochs, .seed = 5});
  });
  const sim::Counters after = count();
  return {.kernels = after.kernels - before.kernels,
          .copies = after.copies - before.copies,
          .pageable_copies = after.pageable_copies - before.pageable_copies,
          .host_waits = after.host_waits - before.host_waits,
          .allocations = after.allocations - before.allocations};
}

// A step copies from and to pinned memory only, allocates nothing on the device, and waits for two things,
// both of them of earlier steps: a slot of the loader, and results.
TEST(SimulatedTraining, AStepBlocksForEarlierStepsOnly) {
  const sim::Counters one = counters_of_epochs(1), four = counters_of_epochs(4);
  EXPECT_EQ(four.pageable_copies, one.pageable_copies);
  EXPECT_EQ(four.allocations, one.allocations);
  EXPECT_GT(four.kernels, 3 * one.kernels);
  EXPECT_LE(four.host_waits - one.host_waits, 30 * 2 + 3 * 2) << "30 steps, 3 ends of epochs";
}

}  // namespace
}  // namespace rondo
