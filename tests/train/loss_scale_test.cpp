// Training under a loss scale, with gradients that overflow on purpose.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

#include "runtime/base/error.h"
#include "runtime/train/callbacks/terminate_on_nan.h"
#include "tests/train/training_world.h"

namespace rondo {
namespace {

using test::errors_of_ranks;
using test::FakeNetwork;
using test::learnable_data;
using test::Recorder;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One element of one gradient is infinite in some steps, counted from 0.
class OverflowingNetwork : public FakeNetwork {
 public:
  using FakeNetwork::FakeNetwork;
  void forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) override {
    FakeNetwork::forward(on, batch, mode, sums);
    if (mode != Mode::kTraining) return;
    overflows_ = overflows_in(step_++);
    if (overflows_ && loses) sums[0] = std::numeric_limits<double>::quiet_NaN();
  }
  void backward(const Execution& on, GradSink& sink) override {
    struct Poison : GradSink {
      void ready(Parameter& parameter) override {
        if (poisons && parameter.name == "dense_1/kernel") parameter.grad.as<float>()[3] = kInfinity;
        to->ready(parameter);
      }
      bool poisons = false;
      GradSink* to = nullptr;
    } poison;
    poison.poisons = overflows_;
    poison.to = &sink;
    FakeNetwork::backward(on, poison);
  }

  std::function<bool(int64_t)> overflows_in = [](int64_t) { return false; };
  bool loses = false;  // the loss is NaN in those steps

 private:
  int64_t step_ = 0;
  bool overflows_ = false;
};

struct OverflowingRank {
  OverflowingRank(Communicator& comm, const TrainerOptions& options)
      : network(*device, {}), trainer(comm, *backend, network, options) {}
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<KernelBackend> backend = make_cpu_backend(*device);
  OverflowingNetwork network;
  Trainer trainer;
};

TrainerOptions scaled(const OptimizerConfig& optimizer, const LossScaling& scaling = {}) {
  return {.optimizer = optimizer, .precision = Precision::kF16, .loss_scaling = scaling};
}

std::vector<bool> skipped(const Recorder& recorder) {
  std::vector<bool> values;
  for (const StepReport& step : recorder.steps) values.push_back(step.skipped);
  return values;
}
std::vector<double> scales(const Recorder& recorder) {
  std::vector<double> values;
  for (const StepReport& step : recorder.steps) values.push_back(step.loss_scale);
  return values;
}

TEST(LossScale, FollowsOverflowsAndGoodSteps) {
  const auto data = learnable_data(32);
  run_ranks(1, [&](Communicator& comm) {
    OverflowingRank rank(comm, scaled(SGD{}, {.initial = 64.0f, .growth_steps = 3}));
    rank.network.overflows_in = [](int64_t step) { return step == 1 || step == 2; };
    Recorder recorder;
    rank.trainer.fit(*data, {.batch_size = 4, .callbacks = {&recorder}});
    EXPECT_THAT(skipped(recorder), ElementsAre(false, true, true, false, false, false, false, false));
    EXPECT_THAT(scales(recorder), ElementsAre(64, 64, 32, 16, 16, 16, 32, 32));
    // The scale is kept from one fit to the next.
    rank.trainer.fit(*data, {.batch_size = 32, .callbacks = {&recorder}});
    EXPECT_EQ(recorder.steps.back().loss_scale, 32.0);
  });
}

TEST(LossScale, BeginsAsInKeras) {
  run_ranks(1, [&](Communicator& comm) {
    OverflowingRank rank(comm, scaled(SGD{}));
    Recorder recorder;
    rank.trainer.fit(*learnable_data(8), {.batch_size = 4, .callbacks = {&recorder}});
    EXPECT_THAT(scales(recorder), Each(32768.0));
  });
}

// The weights after steps over one batch again and again.
std::vector<float> weights_after(int64_t steps, TrainerOptions options, const std::set<int64_t>& overflows) {
  std::vector<float> weights;
  run_ranks(1, [&](Communicator& comm) {
    OverflowingRank rank(comm, options);
    rank.network.overflows_in = [&](int64_t step) { return overflows.contains(step); };
    rank.trainer.fit(*learnable_data(12), {.batch_size = 12, .epochs = steps, .shuffle = false});
    weights = rank.network.trained_weights();
  });
  return weights;
}

// A scale that is a power of two costs not a bit, and a skipped step leaves no trace: not in the weights, the
// slots, Adam's correction, or the learning rate's schedule.
TEST(LossScale, ASkippedStepIsAsIfItNeverWas) {
  const Schedule schedule{.rule = StepSchedule{.every = 2, .factor = 0.5}};
  for (const OptimizerConfig& optimizer :
       {OptimizerConfig{Adam{.learning_rate = 0.01, .schedule = schedule}},
        OptimizerConfig{SGD{.learning_rate = 0.1, .momentum = 0.9, .schedule = schedule}},
        OptimizerConfig{RMSprop{.clip = {.global_clipnorm = 0.05}}}}) {
    const auto plain = weights_after(5, {.optimizer = optimizer}, {});
    EXPECT_EQ(weights_after(8, scaled(optimizer), {0, 3, 6}), plain) << describe(optimizer);
    EXPECT_EQ(weights_after(5, scaled(optimizer, {.initial = 4.0f, .growth_steps = 1}), {}), plain);
    EXPECT_NE(weights_after(6, scaled(optimizer), {}), plain);
  }
}

TEST(LossScale, AllRanksSkipWhatOneCannotSum) {
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> weights(kRanks);
  std::vector<std::vector<bool>> skips(kRanks);
  std::vector<std::vector<double>> used(kRanks);
  run_ranks(kRanks, [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank());
    OverflowingRank rank(comm, scaled(Adam{}, {.growth_steps = 2}));
    rank.network.overflows_in = [&](int64_t step) { return step == 2 && comm.rank() == 1; };
    Recorder recorder;
    rank.trainer.fit(*learnable_data(30), {.batch_size = 6, .callbacks = {&recorder}});
    weights[r] = rank.network.trained_weights();
    skips[r] = skipped(recorder);
    used[r] = scales(recorder);
  });
  EXPECT_THAT(skips[0], ElementsAre(false, false, true, false, false));
  EXPECT_THAT(used[0], ElementsAre(32768, 32768, 65536, 32768, 32768));
  for (size_t r = 1; r < kRanks; ++r) {
    EXPECT_EQ(weights[r], weights[0]);
    EXPECT_EQ(skips[r], skips[0]);
    EXPECT_EQ(used[r], used[0]);
  }
  EXPECT_THAT(weights[0], Each(testing::Truly([](float w) { return std::isfinite(w); })));
}

TEST(LossScale, ANaNLossOfASkippedStepNeitherStopsTheRunNorSpoilsItsMean) {
  run_ranks(2, [&](Communicator& comm) {
    OverflowingRank rank(comm, scaled(SGD{}));
    rank.network.loses = true;
    rank.network.overflows_in = [](int64_t step) { return step == 1; };
    Recorder recorder;
    TerminateOnNaN nan;
    const History history =
        rank.trainer.fit(*learnable_data(20), {.batch_size = 4, .callbacks = {&recorder, &nan}});
    EXPECT_EQ(history.end.steps_done, 5);
    EXPECT_EQ(history.end.stopped_by, "");
    EXPECT_TRUE(std::isnan(recorder.losses[1]));
    const double mean =
        (recorder.losses[0] + recorder.losses[2] + recorder.losses[3] + recorder.losses[4]) / 4.0;
    EXPECT_NEAR(history.at("loss")[0], mean, 1e-6);
  });
}

TEST(LossScale, EndsWithOneMessageWhereTheScaleCannotHelp) {
  const auto errors = errors_of_ranks(2, [&](Communicator& comm) {
    OverflowingRank rank(comm, scaled(SGD{}, {.initial = 4.0f}));
    rank.network.overflows_in = [&](int64_t) { return comm.rank() == 1; };
    rank.network.loses = true;
    const std::vector<float> before = rank.network.trained_weights();
    TerminateOnNaN nan;
    try {
      rank.trainer.fit(*learnable_data(40), {.batch_size = 4, .epochs = 2, .callbacks = {&nan}});
      FAIL() << "the run went on";
    } catch (const NumericError&) {
      EXPECT_EQ(rank.network.trained_weights(), before);
      throw;
    }
  });
  EXPECT_THAT(errors[0],
              HasSubstr("epoch 1/2, step 3/10: gradients are not finite even with a loss scale of 1"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(LossScale, EndsWithOneMessageWhereNoStepWasGood) {
  const auto errors = errors_of_ranks(1, [&](Communicator& comm) {
    OverflowingRank rank(comm, scaled(SGD{}));
    rank.network.overflows_in = [](int64_t) { return true; };
    rank.trainer.fit(*learnable_data(12), {.batch_size = 4});
  });
  EXPECT_THAT(errors[0], HasSubstr("not finite in any of the 3 steps"));
  EXPECT_THAT(errors[0], HasSubstr("4096"));
}

TEST(LossScale, BadSettingsAndRanksThatDifferAreFoundBeforeTheFirstStep) {
  const auto bad =
      errors_of_ranks(1, [](Communicator& comm) { OverflowingRank(comm, scaled(SGD{}, {.initial = 0.0f})); });
  EXPECT_THAT(bad[0], HasSubstr("the initial loss scale is 0"));
  const auto differ = errors_of_ranks(2, [](Communicator& comm) {
    OverflowingRank(comm, comm.rank() == 0 ? scaled(SGD{}) : TrainerOptions{});
  });
  for (const std::string& error : differ) EXPECT_THAT(error, HasSubstr("ranks disagree on precision"));
}

}  // namespace
}  // namespace rondo
