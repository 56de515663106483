// Training, evaluation and prediction on a device whose memory the host may not touch and whose streams run
// later, against the same on the host: not a bit may differ.
#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "models/graph/graph.h"
#include "models/graph/graph_network.h"
#include "models/model.h"
#include "models/rondo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/train/callbacks/early_stopping.h"
#include "runtime/train/callbacks/terminate_on_nan.h"
#include "tests/support/guarded_backend.h"
#include "tests/support/guarded_communicator.h"
#include "tests/support/guarded_device.h"

namespace rondo {
namespace {

using test::GuardedDevice;
using test::GuardedOptions;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Weights = std::vector<std::vector<float>>;

const SyntheticSource& training_data() {
  static const SyntheticSource data({.size = 107, .input_shape = {12, 12, 1}, .classes = 4, .seed = 2});
  return data;
}
const SyntheticSource& other_data() {
  static const SyntheticSource data({.size = 41, .input_shape = {12, 12, 1}, .classes = 4, .seed = 7});
  return data;
}

Model image_model() {
  return Sequential({layers::Input({.shape = {12, 12, 1}}),
                     layers::Conv2D{.filters = 12, .kernel_size = {3, 3}, .activation = "relu"},
                     layers::MaxPooling2D{}, layers::BatchNormalization{}, layers::Dropout{.rate = 0.1f},
                     layers::Conv2D{.filters = 10, .kernel_size = {3, 3}},
                     layers::Activation{.activation = "relu"}, layers::Flatten{},
                     layers::Dense{.units = 4, .activation = "softmax"}});
}

struct Step {
  int64_t epoch = 0, step = 0, samples = 0;
  double loss = 0.0, accuracy = 0.0, epoch_loss = 0.0, learning_rate = 0.0, norm = 0.0;
  bool operator==(const Step&) const = default;
};
void PrintTo(const Step& s, std::ostream* out) {
  *out << "epoch " << s.epoch << " step " << s.step << " samples " << s.samples << " loss " << s.loss
       << " norm " << s.norm;
}

class Record : public Callback {
 public:
  std::string name() const override { return "record"; }
  bool decides() const override { return false; }
  Decision on_step_end(const StepReport& r) override {
    steps.push_back(
        {r.epoch, r.step, r.samples, r.loss, r.metrics[0], r.epoch_loss, r.learning_rate, r.gradient_norm});
    return Decision::kContinue;
  }
  std::vector<Step> steps;
};

// All that a user sees of a model's life.
struct Seen {
  Weights initial;
  std::vector<float> untrained;
  std::vector<Step> steps;
  History history;
  Logs evaluation;
  std::vector<float> predictions;
  Weights weights;
  Logs after_set;
};

void expect_same(const Seen& device, const Seen& host) {
  EXPECT_EQ(device.initial, host.initial);
  EXPECT_EQ(device.untrained, host.untrained);
  EXPECT_EQ(device.steps, host.steps);
  EXPECT_EQ(device.history.history, host.history.history);
  EXPECT_EQ(device.evaluation, host.evaluation);
  EXPECT_EQ(device.predictions, host.predictions);
  EXPECT_EQ(device.weights, host.weights);
  EXPECT_EQ(device.after_set, host.after_set);
}

struct Life {
  OptimizerConfig optimizer = Adam{};
  int64_t batch_size = 25;
  int64_t steps_per_epoch = 0;
  int loader_threads = 1;
};

Seen live(Communicator& comm, KernelBackend& backend, const Life& life) {
  Seen seen;
  Model own = image_model();
  seen.initial = own.get_weights();
  Model model = multi_gpu_model(own, comm, backend);
  seen.untrained = model.predict(other_data(), 16);
  model.compile({.optimizer = life.optimizer,
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .buckets = {.first_bytes = 2048, .bytes = 4096}});
  Record record;
  seen.history = model.fit(training_data(), {.batch_size = life.batch_size,
                                             .epochs = 3,
                                             .steps_per_epoch = life.steps_per_epoch,
                                             .seed = 5,
                                             .validation_data = &other_data(),
                                             .loader_threads = life.loader_threads,
                                             .callbacks = {&record}});
  model.fit(training_data(),
            {.batch_size = life.batch_size, .epochs = 4, .initial_epoch = 3, .callbacks = {&record}});
  seen.steps = record.steps;
  seen.evaluation = model.evaluate(other_data(), 16);
  seen.predictions = model.predict(other_data(), 16);
  seen.weights = model.get_weights();
  model.set_weights(seen.initial);
  seen.after_set = model.evaluate(other_data(), 50);
  return seen;
}

std::vector<Seen> live_on_hosts(int ranks, const Life& life) {
  std::vector<Seen> all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    all[static_cast<size_t>(comm.rank())] = live(comm, *backend, life);
  });
  return all;
}

std::vector<Seen> live_on_devices(int ranks, const Life& life, const GuardedOptions& options) {
  std::vector<Seen> all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& host) {
    GuardedOptions own = options;
    own.seed = options.seed * 100 + static_cast<uint64_t>(host.rank());
    GuardedDevice device(own);
    const auto backend = test::make_guarded_backend(device);
    const auto comm = test::make_guarded_communicator(host, device);
    all[static_cast<size_t>(host.rank())] = live(*comm, *backend, life);
  });
  return all;
}

class OnADevice : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OnADevice, testing::Values(1, 2, 5));

TEST_P(OnADevice, EveryResultIsTheHostsWhenStreamsRunAtOnce) {
  const auto host = live_on_hosts(GetParam(), {});
  const auto device = live_on_devices(GetParam(), {}, {.deferred = false});
  for (size_t r = 0; r < host.size(); ++r) expect_same(device[r], host[r]);
}

TEST_P(OnADevice, EveryResultIsTheHostsWhenStreamsRunLater) {
  const Life life{
      .optimizer = SGD{.learning_rate = 0.05,
                       .momentum = 0.9,
                       .schedule = {.rule = StepSchedule{.every = 3, .factor = 0.7}, .warmup_steps = 2},
                       .clip = {.global_clipnorm = 0.6}},
      .steps_per_epoch = 3};
  const auto host = live_on_hosts(GetParam(), life);
  EXPECT_GT(host[0].steps[0].norm, 0.6) << "nothing is clipped";
  for (const uint64_t seed : {1u, 2u}) {
    const auto device = live_on_devices(GetParam(), life, {.seed = seed});
    for (size_t r = 0; r < host.size(); ++r) expect_same(device[r], host[r]);
  }
}

// Batches of 7 rows leave some of the five ranks nothing in the last one.
TEST_P(OnADevice, RanksWithoutRowsAndReadersInTheTrainingThread) {
  const Life life{.optimizer = RMSprop{.clip = {.clipvalue = 0.01}}, .batch_size = 21, .loader_threads = 0};
  const auto host = live_on_hosts(GetParam(), life);
  const auto device = live_on_devices(GetParam(), life, {});
  for (size_t r = 0; r < host.size(); ++r) expect_same(device[r], host[r]);
}

TEST(Device, OneRankWithoutTransport) {
  const auto host = live_on_hosts(1, {});
  GuardedDevice device;
  const auto backend = test::make_guarded_backend(device);
  const auto comm = make_self_communicator(device);
  expect_same(live(*comm, *backend, {}), host[0]);
  EXPECT_EQ(device.memory().in_use, 0);
  EXPECT_GT(device.memory().peak, 0);
}

// A model on one guarded device, compiled and ready to fit.
struct OneDevice {
  explicit OneDevice(const CompileOptions& options) { model.compile(options); }

  GuardedDevice device;
  std::unique_ptr<KernelBackend> backend = test::make_guarded_backend(device);
  std::unique_ptr<Communicator> comm = make_self_communicator(device);
  Model model = multi_gpu_model(image_model(), *comm, *backend);
};

CompileOptions compile_options(const OptimizerConfig& optimizer) {
  return {.optimizer = optimizer,
          .loss = "sparse_categorical_crossentropy",
          .metrics = {"accuracy"},
          .buckets = {.first_bytes = 2048, .bytes = 4096}};
}

// Looks at what the host did between the reports of two steps.
class WatchHost : public Callback {
 public:
  explicit WatchHost(GuardedDevice& device) : device_(device) {}
  std::string name() const override { return "watch host"; }
  bool decides() const override { return false; }
  Decision on_step_end(const StepReport& report) override {
    auto& counts = device_.counts();
    if (report.step >= 1) {
      synchronizations += counts.synchronizations - synchronizations_;
      allocations += counts.allocations - allocations_;
      ++steps;
    }
    synchronizations_ = counts.synchronizations;
    allocations_ = counts.allocations;
    return Decision::kContinue;
  }
  int64_t steps = 0, synchronizations = 0, allocations = 0;

 private:
  GuardedDevice& device_;
  int64_t synchronizations_ = 0, allocations_ = 0;
};

TEST(Device, StepsSynchronizeNoStreamAndAllocateNothing) {
  OneDevice one(compile_options(Adam{.clip = {.global_clipnorm = 1.0}}));
  WatchHost watch(one.device);
  one.model.fit(training_data(), {.batch_size = 8, .epochs = 2, .callbacks = {&watch}});
  EXPECT_EQ(watch.steps, 2 * 13);
  EXPECT_EQ(watch.synchronizations, 0);
  EXPECT_EQ(watch.allocations, 0);
}

// Stops the kernels in front of the first step, and lets them go on when the host waits.
class PauseInFront : public Callback {
 public:
  explicit PauseInFront(GuardedDevice& device) : device_(device) {}
  ~PauseInFront() override {
    if (watcher_.joinable()) watcher_.join();
  }
  std::string name() const override { return "pause in front"; }
  bool decides() const override { return false; }
  void on_epoch_begin(int64_t epoch) override {
    if (epoch != 0) return;
    device_.pause();
    watcher_ = std::thread([this] {
      using namespace std::chrono_literals;
      for (int i = 0; i < 10000 && device_.counts().steps < 3; ++i) std::this_thread::sleep_for(1ms);
      while (device_.counts().waiting == 0) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(30ms);
      queued = device_.counts().steps.load();
      device_.resume();
    });
  }
  std::atomic<int64_t> queued{0};  // steps, when the host went no further

 private:
  GuardedDevice& device_;
  std::thread watcher_;
};

TEST(Device, HostQueuesTwoStepsBehindTheOneItWaitsFor) {
  OneDevice one(compile_options(Adam{.clip = {.global_clipnorm = 1.0}}));
  PauseInFront pause(one.device);
  one.model.fit(training_data(), {.batch_size = 25, .callbacks = {&pause}});
  EXPECT_EQ(pause.queued, 3);
}

class StopAt : public Callback {
 public:
  explicit StopAt(int64_t step) : step_(step) {}
  std::string name() const override { return "stop at"; }
  Decision on_step_end(const StepReport& report) override {
    return report.step == step_ ? Decision::kStop : Decision::kContinue;
  }

 private:
  int64_t step_;
};

// The vote of one rank ends the epoch on all of them, at the same step.
TEST(Device, RanksStopTogether) {
  constexpr int kRanks = 3;
  std::vector<EndReport> ends(kRanks);
  std::vector<size_t> reported(kRanks);
  run_ranks(kRanks, [&](Communicator& host) {
    const auto r = static_cast<size_t>(host.rank());
    GuardedDevice device({.seed = r});
    const auto backend = test::make_guarded_backend(device);
    const auto comm = test::make_guarded_communicator(host, device);
    Model model = multi_gpu_model(image_model(), *comm, *backend);
    model.compile(compile_options(SGD{}));
    Record record;
    StopAt stop(r == 1 ? 2 : -1);
    ends[r] = model.fit(training_data(), {.batch_size = 6, .epochs = 2, .callbacks = {&record, &stop}}).end;
    reported[r] = record.steps.size();
  });
  for (size_t r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ends[r].stopped_by, "stop at (rank 1)");
    EXPECT_GT(ends[r].steps_done, 3);
    EXPECT_LT(ends[r].steps_done, 10);
    EXPECT_EQ(ends[r].steps_done, ends[0].steps_done);
    EXPECT_EQ(static_cast<int64_t>(reported[r]), ends[0].steps_done);
  }
}

TEST(Device, TerminatesOnNaN) {
  OneDevice one(compile_options(SGD{.learning_rate = 1e30}));
  TerminateOnNaN nan;
  const History history = one.model.fit(training_data(), {.batch_size = 6, .epochs = 3, .callbacks = {&nan}});
  EXPECT_EQ(history.end.stopped_by, "TerminateOnNaN");
  EXPECT_EQ(history.epoch.size(), 1u);
  EXPECT_LT(history.end.steps_done, 15);
}

TEST(Device, StopsEarlyAfterTheSameEpochAsTheHost) {
  const auto epochs = [](Model model) {
    EarlyStopping early({.monitor = "val_loss", .min_delta = 10.0, .patience = 1});
    return model
        .fit(training_data(),
             {.batch_size = 25, .epochs = 9, .validation_data = &other_data(), .callbacks = {&early}})
        .at("val_loss");
  };
  Model host = image_model();
  host.compile(compile_options(Adam{}));
  OneDevice one(compile_options(Adam{}));
  const auto expected = epochs(host);
  EXPECT_EQ(expected.size(), 2u);
  EXPECT_EQ(epochs(one.model).size(), expected.size());
}

TEST(Device, AModelThatWasUsedOnTheHostStaysThere) {
  GuardedDevice device;
  const auto backend = test::make_guarded_backend(device);
  const auto comm = make_self_communicator(device);
  Model model = image_model();
  model.predict(other_data());
  EXPECT_THAT([&] { multi_gpu_model(model, *comm, *backend); },
              ThrowsMessage<InvalidArgument>(HasSubstr("make it parallel")));

  // Nor can it join another that is on a device.
  Model other = image_model();
  Model parallel = multi_gpu_model(other, *comm, *backend);
  const auto in = layers::Input({.shape = {12, 12, 1}});
  const Model renamed(other.graph().inputs(), other.graph().outputs(), {.name = "other"});
  Model both({in}, {layers::Add{}(std::vector{model(in), renamed(in)})});
  EXPECT_THAT([&] { both.predict(other_data()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("share weights are put on one device")));
}

TEST(Device, ReportsItsPeakMemory) {
  OneDevice one(compile_options(Adam{}));
  const History history = one.model.fit(training_data(), {});
  EXPECT_EQ(history.end.ranks.at(0).peak_device_bytes, one.device.memory().peak);
}

// Weights and evaluations at the end of each step, as a callback sees them.
class LookInside : public Callback {
 public:
  explicit LookInside(Model model) : model_(std::move(model)) {}
  std::string name() const override { return "look inside"; }
  bool decides() const override { return false; }
  Decision on_step_end(const StepReport&) override {
    weights.push_back(model_.get_weights());
    evaluations.push_back(model_.evaluate(other_data(), 16));
    return Decision::kContinue;
  }
  std::vector<Weights> weights;
  std::vector<Logs> evaluations;

 private:
  Model model_;
};

TEST(Device, CallbacksSeeTheWeightsOfTheStepsQueuedSoFar) {
  const ModelFitOptions options{.batch_size = 12, .epochs = 2};
  const auto look = [&](Model model) {
    LookInside inside(model);
    ModelFitOptions with = options;
    with.callbacks = {&inside};
    model.fit(training_data(), with);
    return std::pair(inside.weights, inside.evaluations);
  };
  Model model = image_model();
  model.compile(compile_options(Adam{}));
  const auto [host_weights, host_evaluations] = look(model);
  OneDevice one(compile_options(Adam{}));
  const auto [weights, evaluations] = look(one.model);
  constexpr size_t kSteps = 9;  // of an epoch
  ASSERT_EQ(weights.size(), 2 * kSteps);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t queued = i / kSteps * kSteps + std::min(i % kSteps + 2, kSteps - 1);
    EXPECT_EQ(weights[i], host_weights[queued]) << "step " << i;
    EXPECT_EQ(evaluations[i], host_evaluations[queued]) << "step " << i;
  }
}

// The loss of some rows of training_data(), computed by a network that has to grow for the second batch while
// the first is on its way.
std::vector<double> losses_of_growing_batches(KernelBackend& backend, Communicator& comm,
                                              const std::function<void()>& before_passes) {
  Model model = multi_gpu_model(image_model(), comm, backend);
  model.compile(compile_options(Adam{}));
  GraphNetwork& network = model.network(2);
  Device& device = backend.device();
  Stream& stream = network.stream();
  std::vector<double> losses(2);
  const Buffer sums = device.allocate(4 * sizeof(double));
  std::deque<Buffer> memory;
  std::deque<Batch> batches;
  for (const int64_t rows : {4, 60}) {
    Batch& batch = batches.emplace_back();
    batch.rows = rows;
    batch.inputs.resize(1);
    batch.labels.resize(1);
    batch.inputs[0].desc.shape = {rows, 12, 12, 1};
    batch.inputs[0].data = memory.emplace_back(device.allocate(rows * 144 * 4)).data();
    batch.labels[0].desc.shape = {rows};
    batch.labels[0].desc.dtype = DType::kI32;
    batch.labels[0].data = memory.emplace_back(device.allocate(rows * 4)).data();
    std::vector<float> input(static_cast<size_t>(rows * 144));
    std::vector<int32_t> labels(static_cast<size_t>(rows));
    for (size_t row = 0; row < labels.size(); ++row) {
      training_data().read(static_cast<int64_t>(row), std::span(input).subspan(row * 144, 144),
                           std::as_writable_bytes(std::span(&labels[row], 1)));
    }
    stream.copy(batch.inputs[0].data, input.data(), batch.inputs[0].bytes());
    stream.copy(batch.labels[0].data, labels.data(), batch.labels[0].bytes());
    stream.synchronize();
  }
  before_passes();
  for (size_t i = 0; i < batches.size(); ++i) {
    network.forward({.stream = stream}, batches[i], Mode::kInference, {sums.as<double>() + 2 * i, 2});
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    stream.copy(&losses[i], sums.as<double>() + 2 * i, sizeof(double));
  }
  stream.synchronize();
  return losses;
}

TEST(Device, ANetworkThatGrowsWaitsForPassesUnderway) {
  const auto host = make_cpu_device(1);
  const auto host_comm = make_self_communicator(*host);
  const auto expected = losses_of_growing_batches(*make_cpu_backend(*host), *host_comm, [] {});
  GuardedDevice device;
  const auto comm = make_self_communicator(device);
  // Kernels stand still until the host waits for them.
  std::thread resume;
  const auto pause = [&] {
    device.pause();
    resume = std::thread([&device, before = device.counts().synchronizations.load()] {
      while (device.counts().synchronizations == before)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      device.resume();
    });
  };
  EXPECT_EQ(losses_of_growing_batches(*test::make_guarded_backend(device), *comm, pause), expected);
  resume.join();
}

// The message tells what the memory was for, how much there is, and how many rows would fit: about right.
TEST(Device, WithTooLittleMemorySaysWhichBatchWouldFit) {
  const auto train = [](int64_t device_bytes, int64_t batch_size) {
    GuardedDevice device({.deferred = false, .bytes = device_bytes});
    const auto backend = test::make_guarded_backend(device);
    const auto comm = make_self_communicator(device);
    Model model = multi_gpu_model(image_model(), *comm, *backend);
    model.compile(compile_options(Adam{}));
    model.fit(training_data(), {.batch_size = batch_size, .epochs = 1});
  };
  int64_t fits = 0;
  try {
    train(int64_t{1} << 20, 107);
    ADD_FAILURE() << "the batch fits";
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    EXPECT_THAT(text, HasSubstr("out of memory on guarded device"));
    EXPECT_THAT(text, HasSubstr("were wanted for the intermediate results of 107 rows"));
    EXPECT_THAT(text, HasSubstr("of 1.0 MiB are left"));
    const size_t at = text.find("About ");
    ASSERT_NE(at, std::string::npos) << text;
    fits = std::stoll(text.substr(at + 6));
  }
  EXPECT_GT(fits, 10);
  EXPECT_LT(fits, 107);
  EXPECT_NO_THROW(train(int64_t{1} << 20, fits / 2));
  EXPECT_THROW(train(int64_t{1} << 20, 2 * fits), OutOfMemory);
  EXPECT_THAT([&] { train(4096, 8); }, ThrowsMessage<OutOfMemory>(HasSubstr("were wanted for weight ")));
}

TEST(Device, AFailingKernelIsRaisedWhereItsResultIsWaitedFor) {
  OneDevice one(compile_options(Adam{}));
  one.model.fit(training_data(), {.batch_size = 25});
  auto& counts = one.device.counts();
  counts.fails_from = counts.kernels + 100;
  const auto failure =
      ThrowsMessage<DeviceError>(HasSubstr("kernel " + std::to_string(counts.fails_from) + " failed"));
  EXPECT_THAT([&] { one.model.fit(training_data(), {.batch_size = 25}); }, failure);
  EXPECT_THROW(one.model.get_weights(), DeviceError);

  OneDevice other(compile_options(Adam{}));
  other.model.predict(other_data(), 16);
  other.device.counts().fails_from = other.device.counts().kernels + 3;
  EXPECT_THROW(other.model.predict(other_data(), 16), DeviceError);
  OneDevice third(compile_options(Adam{}));
  third.model.evaluate(other_data(), 16);
  third.device.counts().fails_from = third.device.counts().kernels + 3;
  EXPECT_THROW(third.model.evaluate(other_data(), 16), DeviceError);
}

// What a failing callback leaves in flight is waited for before its memory goes: the guarded device would
// abort.
TEST(Device, AFailureInTheMiddleLeavesNothingInFlight) {
  class Fail : public Callback {
   public:
    std::string name() const override { return "fail"; }
    Decision on_step_end(const StepReport& report) override {
      if (report.step == 1) throw FileError("disk full");
      return Decision::kContinue;
    }
  };
  Fail fail;
  {
    OneDevice one(compile_options(Adam{}));
    EXPECT_THAT([&] { one.model.fit(training_data(), {.batch_size = 6, .callbacks = {&fail}}); },
                ThrowsMessage<FileError>(HasSubstr("disk full")));
  }
}

using DeviceDeathTest = testing::Test;
TEST(DeviceDeathTest, HostCodeThatTouchesDeviceMemoryDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        GuardedDevice device({.deferred = false});
        const Buffer buffer = device.allocate(64);
        *buffer.as<volatile float>() = 1.0f;
      },
      "");
}

}  // namespace
}  // namespace rondo
