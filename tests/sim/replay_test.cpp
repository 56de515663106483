// Steps that are captured once and replayed, on simulated GPUs with ranks as threads: the same bits as steps
// queued kernel by kernel, one launch each, and a way back where a step cannot be captured.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/graph/graph_network.h"
#include "models/model.h"
#include "models/rondo.h"
#include "runtime/base/stopwatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/staged/staged_communicator.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/loss.h"
#include "runtime/launch/gpu_loader.h"
#include "runtime/train/trainer.h"
#include "tests/sim/control.h"

namespace rondo {
namespace {

using ::testing::HasSubstr;

FoundGpus& gpus() {
  static FoundGpus found = find_gpus();
  if (found.module == nullptr) throw std::runtime_error(found.reason);
  return found;
}

// A function of the module that the tests run on, wherever it was loaded from.
template <class Function>
Function* control(const char* name) {
  const void* inside = *reinterpret_cast<void* const*>(gpus().module);  // its table of virtual functions
  Dl_info info;
  if (dladdr(inside, &info) == 0) throw std::runtime_error("the simulated module is not loaded");
  void* symbol = dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), name);
  if (symbol == nullptr) throw std::runtime_error(std::string("the simulated module has no ") + name);
  return reinterpret_cast<Function*>(symbol);
}

sim::Counters counters() {
  sim::Counters now;
  control<void(sim::Counters*)>("rondo_sim_counters")(&now);
  return now;
}

struct Seen {
  std::vector<double> losses;
  std::vector<std::pair<std::string, std::vector<double>>> history;
  std::vector<float> predictions;
  std::vector<std::vector<float>> weights;
  bool operator==(const Seen&) const = default;
};

class Watcher : public Callback {
 public:
  std::string name() const override { return "watcher"; }
  bool decides() const override { return false; }
  void on_epoch_begin(int64_t epoch) override {
    if (begin) begin(epoch);
  }
  Decision on_step_end(const StepReport& report) override {
    losses.push_back(report.loss);
    return Decision::kContinue;
  }
  std::vector<double> losses;
  std::function<void(int64_t)> begin;
};

struct Training {
  std::function<Model()> model;
  OptimizerConfig optimizer = Adam{};
  int64_t samples = 44;  // batches of 8: five full ones and one of 4
  int64_t epochs = 3;
  bool validates = true;
  bool replay = true;
  bool staged = false;
  std::function<void(Model&, int64_t epoch, Device&)> epoch_begin = {};
};

Seen train(const Training& run, Communicator& comm, KernelBackend& backend) {
  const SyntheticSource data({.size = run.samples, .input_shape = {6, 6, 2}, .classes = 3, .seed = 2});
  const SyntheticSource validation({.size = 10, .input_shape = {6, 6, 2}, .classes = 3, .seed = 3});
  Model own = run.model();
  Model model = multi_gpu_model(own, comm, backend);
  model.compile({.optimizer = run.optimizer,
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .buckets = {.first_bytes = 512, .bytes = 1024}});
  Watcher watcher;
  if (run.epoch_begin)
    watcher.begin = [&](int64_t epoch) { run.epoch_begin(model, epoch, backend.device()); };
  Seen seen;
  seen.history = model
                     .fit(data, {.batch_size = 8,
                                 .epochs = run.epochs,
                                 .seed = 5,
                                 .validation_data = run.validates ? &validation : nullptr,
                                 .replay_steps = run.replay,
                                 .callbacks = {&watcher}})
                     .history;
  seen.losses = watcher.losses;
  seen.predictions = model.predict(data, 16);
  seen.weights = model.get_weights();
  return seen;
}

// What rank 0 sees.
Seen train_on(int ranks, const Training& run) {
  Seen seen;
  run_ranks(ranks, [&](Communicator& host) {
    const auto device = gpus().module->make_device(run.staged ? 0 : host.rank());
    const auto backend = gpus().module->make_backend(*device);
    const auto comm = run.staged ? make_staged_communicator(host, *device)
                                 : gpus().module->make_communicator(host, *device, {});
    Seen own = train(run, *comm, *backend);
    if (host.rank() == 0) seen = std::move(own);
  });
  return seen;
}

Model mlp() {
  return Sequential({layers::Input({.shape = {6, 6, 2}}), layers::Flatten{},
                     layers::Dense{.units = 12, .activation = "relu"},
                     layers::Dense{.units = 3, .activation = "softmax"}});
}

Model cnn() {
  return Sequential({layers::Input({.shape = {6, 6, 2}}),
                     layers::Conv2D{.filters = 4, .kernel_size = {3, 3}, .activation = "relu"},
                     layers::BatchNormalization{}, layers::MaxPooling2D{}, layers::Dropout{.rate = 0.2f},
                     layers::Flatten{}, layers::Dense{.units = 3, .activation = "softmax"}});
}

// A learning rate of its own in every step.
Schedule falling() {
  return {.rule = CosineSchedule{}, .warmup_steps = 4};
}

class Replay : public testing::TestWithParam<int> {
 protected:
  // The bits of a run that replays, and how many steps each rank replayed.
  void expect_same_bits(Training run) {
    run.replay = false;
    const int64_t before = counters().graph_launches;
    const Seen queued = train_on(GetParam(), run);
    EXPECT_EQ(counters().graph_launches, before);
    run.replay = true;
    const Seen replayed = train_on(GetParam(), run);
    EXPECT_EQ(replayed, queued);
    const int64_t full = run.samples / 8 * run.epochs;
    EXPECT_EQ(counters().graph_launches - before, (full - 2) * GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Replay, testing::Values(1, 2));

TEST_P(Replay, HasTheSameBitsOnAnMlp) {
  expect_same_bits({.model = mlp, .optimizer = SGD{.momentum = 0.9, .schedule = falling()}});
}

TEST_P(Replay, HasTheSameBitsWithDropoutNormalizationAndClipping) {
  expect_same_bits(
      {.model = cnn, .optimizer = Adam{.schedule = falling(), .clip = {.global_clipnorm = 0.3}}});
}

TEST_P(Replay, HasTheSameBitsInEveryOptimizer) {
  for (const char* name :
       {"sgd", "rmsprop", "adam", "adagrad", "adadelta", "adamw", "adamax", "nadam", "lars", "lamb"}) {
    SCOPED_TRACE(name);
    expect_same_bits({.model = mlp, .optimizer = optimizer_by_name(name), .epochs = 1});
  }
}

// What the captured step uses stays where it was when the network takes larger memory.
TEST(ReplayMemory, OutlivesPassesThatNeedMore) {
  Buffer other;
  const auto in_the_middle = [&](Model& model, int64_t epoch, Device& device) {
    if (epoch == 1) {
      const int64_t bytes = model.network(8).arena().bytes();
      const SyntheticSource many({.size = 64, .input_shape = {6, 6, 2}, .classes = 3, .seed = 9});
      model.predict(many, 64);
      ASSERT_GT(model.network(8).arena().bytes(), bytes);
      other = device.allocate(bytes);  // what the network has let go of, unless somebody keeps it
    } else if (epoch == 2) {
      std::vector<char> seen(static_cast<size_t>(other.bytes()));
      const auto stream = device.make_stream();
      stream->copy(seen.data(), other.data(), other.bytes());
      stream->synchronize();
      EXPECT_THAT(seen, testing::Each(char{0}));
      other = {};
    }
  };
  const Seen queued = train_on(1, {.model = cnn, .replay = false, .epoch_begin = in_the_middle});
  EXPECT_EQ(train_on(1, {.model = cnn, .epoch_begin = in_the_middle}), queued);
}

// Out of the difference between two runs: 20 more steps of full batches, and nothing else.
TEST(ReplayLaunches, AreOneForAStep) {
  const auto of_epochs = [](int64_t epochs) {
    const sim::Counters before = counters();
    train_on(1, {.model = cnn, .samples = 40, .epochs = epochs, .validates = false});
    const sim::Counters after = counters();
    return sim::Counters{.kernels = after.kernels - before.kernels,
                         .host_waits = after.host_waits - before.host_waits,
                         .allocations = after.allocations - before.allocations,
                         .graph_launches = after.graph_launches - before.graph_launches,
                         .launches = after.launches - before.launches};
  };
  const sim::Counters one = of_epochs(1), five = of_epochs(5);
  EXPECT_EQ(one.graph_launches, 3);
  EXPECT_EQ(five.graph_launches - one.graph_launches, 20);
  EXPECT_EQ(five.launches, one.launches);
  EXPECT_EQ(five.allocations, one.allocations);
  EXPECT_GT(five.kernels - one.kernels, 20 * 15);
  EXPECT_LE(five.host_waits - one.host_waits, 20 * 2 + 4 * 2);
}

// One rank has no memory for the first graph, or for its second one: all go on as before, and it says so.
TEST(ReplayFailure, WithoutMemoryForAGraphStepsAreQueued) {
  const Seen expected = train_on(2, {.model = cnn, .replay = false});
  for (const int64_t failing : {1, 3}) {
    const int64_t before = counters().graph_launches;
    testing::internal::CaptureStderr();
    const Seen seen = train_on(2, {.model = cnn, .epoch_begin = [&](Model&, int64_t epoch, Device&) {
                                     if (epoch > 0) return;
                                     control<void(int64_t)>("rondo_sim_fail_allocation")(failing);
                                   }});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(counters().graph_launches - before, failing == 1 ? 0 : 2);
    EXPECT_THAT(said, HasSubstr("steps are queued kernel by kernel, not replayed"));
    EXPECT_THAT(said, HasSubstr("out of memory for a CUDA graph"));
    EXPECT_EQ(said.find("not replayed"), said.rfind("not replayed")) << said;
  }
}

// A network of somebody else: it says that it cannot be replayed, or it cannot and does not say so.
class AwkwardNetwork final : public Network {
 public:
  enum class Kind { kFits, kSaysSo, kBlocks };
  AwkwardNetwork(GraphNetwork& network, Kind kind) : network_(network), kind_(kind) {}
  const ParameterList& parameters() override { return network_.parameters(); }
  const std::vector<std::string>& metric_names() override { return network_.metric_names(); }
  void prepare(int64_t rows, Mode mode) override { network_.prepare(rows, mode); }
  void forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) override {
    network_.forward(on, batch, mode, sums);
  }
  void backward(const Execution& on, GradSink& sink) override {
    network_.backward(on, sink);
    if (kind_ == Kind::kBlocks) on.stream.synchronize();  // with collectives underway
  }
  std::optional<std::vector<Buffer>> replay_memory() override {
    if (kind_ == Kind::kSaysSo) return std::nullopt;
    return network_.replay_memory();
  }
  void predict(const Execution& on, const Batch& batch, std::span<const std::span<float>> outputs) override {
    network_.predict(on, batch, outputs);
  }
  std::vector<Shape> output_shapes() const override { return network_.output_shapes(); }

 private:
  GraphNetwork& network_;
  Kind kind_;
};

// The losses on two ranks, of which the second has that kind of network.
std::vector<double> losses_of(AwkwardNetwork::Kind kind) {
  std::vector<double> losses;
  run_ranks(2, [&](Communicator& host) {
    const auto device = gpus().module->make_device(host.rank());
    const auto backend = gpus().module->make_backend(*device);
    const auto comm = gpus().module->make_communicator(host, *device, {});
    const SyntheticSource data({.size = 44, .input_shape = {6, 6, 2}, .classes = 3, .seed = 2});
    const Model model = mlp();
    GraphNetwork network(
        model.graph(), *backend,
        {.nominal_rows = 4, .objective = Objective{Loss::kSparseCategoricalCrossentropy, {}}});
    AwkwardNetwork awkward(network, host.rank() == 1 ? kind : AwkwardNetwork::Kind::kFits);
    Trainer trainer(*comm, *backend, awkward, {});
    const History history = trainer.fit(data, {.batch_size = 8, .epochs = 3});
    if (host.rank() == 0) losses = history.at("loss");
  });
  return losses;
}

TEST(ReplayFailure, NetworksThatCannotBeCapturedAreQueued) {
  using Kind = AwkwardNetwork::Kind;
  int64_t before = counters().graph_launches;
  const std::vector<double> expected = losses_of(Kind::kFits);
  EXPECT_EQ(counters().graph_launches - before, 2 * (15 - 2));
  for (const Kind kind : {Kind::kSaysSo, Kind::kBlocks}) {
    before = counters().graph_launches;
    testing::internal::CaptureStderr();
    const std::vector<double> losses = losses_of(kind);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(losses, expected);
    EXPECT_EQ(counters().graph_launches, before);
    EXPECT_THAT(said, testing::StartsWith("rank 1"));
    EXPECT_EQ(said.find("not replayed"), said.rfind("not replayed")) << said;
    EXPECT_THAT(said, HasSubstr(kind == Kind::kSaysSo ? "cannot be captured" : "capturing"));
  }
}

TEST(ReplayFailure, GradientsThroughTheHostAreNotCaptured) {
  const int64_t before = counters().graph_launches;
  const Seen staged = train_on(2, {.model = mlp, .epochs = 1, .staged = true});
  EXPECT_EQ(counters().graph_launches, before);
  EXPECT_EQ(staged.losses.size(), 6u);
}

TEST(ReplayFailure, LeavesNothingBehind) {
  train_on(2, {.model = cnn});
  EXPECT_STREQ(control<const char*()>("rondo_sim_leftovers")(), "");
}

// A rank's collective fails, or is never taken part in, inside of a replayed step: all ranks end, soon, and
// with the reason. RONDO_SIM_NCCL_ERROR and RONDO_SIM_NCCL_HANG say which.
TEST(ReplayFault, EndsAllRanks) {
  const char* reason = std::getenv("RONDO_EXPECTED_FAULT");
  if (reason == nullptr) GTEST_SKIP() << "runs where a fault is injected";
  const int64_t before = counters().graph_launches;
  const Stopwatch watch;
  std::vector<std::string> errors(2);
  run_ranks(2, [&](Communicator& host) {
    const auto device = gpus().module->make_device(host.rank());
    const auto backend = gpus().module->make_backend(*device);
    const auto comm =
        gpus().module->make_communicator(host, *device, {.deadline = std::chrono::milliseconds(1500)});
    try {
      train({.model = cnn, .epochs = 50}, *comm, *backend);
    } catch (const PeerError& error) {
      errors[static_cast<size_t>(host.rank())] = error.what();
    }
  });
  EXPECT_GT(counters().graph_launches, before);
  EXPECT_LT(watch.seconds(), 20.0);
  for (const std::string& error : errors) EXPECT_THAT(error, testing::Not(testing::IsEmpty()));
  EXPECT_THAT(errors[0] + errors[1], HasSubstr(reason));
}

}  // namespace
}  // namespace rondo
