// Who ends a run, and how all ranks come to know.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/train/callbacks/early_stopping.h"
#include "runtime/train/callbacks/terminate_on_nan.h"
#include "tests/train/training_world.h"

namespace rondo {
namespace {

using test::learnable_data;
using test::RankWorld;
using test::Recorder;
using test::Stopper;
using ::testing::HasSubstr;

class StopRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StopRanks, ::testing::Values(1, 2, 3, 8));

// 20 samples in batches of 4: 5 steps an epoch.
TEST_P(StopRanks, AStepDecisionOfOneRankStopsAllAfterTheNextStep) {
  const int ranks = GetParam();
  const auto data = learnable_data(20);
  run_ranks(ranks, [&](Communicator& comm) {
    RankWorld world(comm);
    Stopper stopper("Limit");
    Recorder recorder;
    if (comm.rank() == ranks - 1) stopper.at_step = 6;  // the second step of epoch 1
    const History history =
        world.trainer.fit(*data, {.batch_size = 4, .epochs = 5, .callbacks = {&stopper, &recorder}});
    EXPECT_EQ(recorder.steps.size(), 8u);
    EXPECT_EQ(history.end.steps_done, 8);
    EXPECT_EQ(history.epoch, (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(recorder.epochs.back().samples, 12);
    EXPECT_EQ(history.end.stopped_by,
              ranks == 1 ? "Limit" : "Limit (rank " + std::to_string(ranks - 1) + ")");
    EXPECT_EQ(history.end.stop_reason, "because");
  });
}

TEST_P(StopRanks, AStepDecisionInTheLastStepStopsAtTheEpochsEnd) {
  const auto data = learnable_data(20);
  run_ranks(GetParam(), [&](Communicator& comm) {
    RankWorld world(comm);
    Stopper stopper("Limit");
    if (comm.rank() == 0) stopper.at_step = 4;
    const History history = world.trainer.fit(*data, {.batch_size = 4, .epochs = 5, .callbacks = {&stopper}});
    EXPECT_EQ(history.end.steps_done, 5);
    EXPECT_THAT(history.end.stopped_by, HasSubstr("Limit"));
  });
}

TEST_P(StopRanks, AnEpochDecisionStopsAtOnce) {
  const int ranks = GetParam();
  const auto data = learnable_data(20);
  run_ranks(ranks, [&](Communicator& comm) {
    RankWorld world(comm);
    Stopper first("First");
    Stopper second("Second");
    if (comm.rank() != 0 || ranks == 1) first.at_epoch = 1;
    second.at_epoch = 1;
    const History history =
        world.trainer.fit(*data, {.batch_size = 4, .epochs = 5, .callbacks = {&first, &second}});
    EXPECT_EQ(history.end.epochs_done, 2);
    EXPECT_EQ(history.end.steps_done, 10);
    const std::string expected = ranks == 1   ? "First"
                                 : ranks == 2 ? "Second (rank 0), First (rank 1)"
                                 : ranks == 3 ? "Second (rank 0), First (ranks 1, 2)"
                                              : "Second (rank 0), First (ranks 1, 2, 3, 4, 5, 6, 7)";
    EXPECT_EQ(history.end.stopped_by, expected);
  });
}

TEST_P(StopRanks, ALossThatTurnsNaNStopsAllWithAReason) {
  const int ranks = GetParam();
  const auto data = learnable_data(20);
  const auto validation = learnable_data(4, 9);
  run_ranks(ranks, [&](Communicator& comm) {
    RankWorld world(comm, {.optimizer = SGD{.learning_rate = 0.25}});
    TerminateOnNaN nan;
    // Only the last rank's weights go wrong, in step 7.
    world.network.on_step = [&](const StepState& state) {
      if (state.step != 7 || comm.rank() != ranks - 1) return;
      world.network.parameter(0).value.memory<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    };
    const History history = world.trainer.fit(
        *data, {.batch_size = 8, .epochs = 9, .validation = validation.get(), .callbacks = {&nan}});
    EXPECT_EQ(history.end.steps_done, 9);  // steps of 3 an epoch: 7 is the second of epoch 2
    EXPECT_EQ(history.end.stopped_by, "TerminateOnNaN");
    EXPECT_THAT(history.end.stop_reason,
                HasSubstr("the loss is nan in epoch 3/9, step 2/3, at learning rate 0.25"));
    EXPECT_TRUE(std::isnan(history.at("loss").back()));
    EXPECT_TRUE(std::isnan(history.at("val_loss").back()));
    EXPECT_FALSE(std::isnan(history.at("val_loss")[1]));
  });
}

TEST(Stop, EarlyStoppingEndsARunThatDoesNotImprove) {
  const auto data = learnable_data(20);
  run_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm, {.optimizer = SGD{.learning_rate = 0.0}});
    EarlyStopping early({.monitor = "loss", .min_delta = 1e-3, .patience = 3});
    const History history = world.trainer.fit(*data, {.batch_size = 8, .epochs = 30, .callbacks = {&early}});
    EXPECT_EQ(history.end.epochs_done, 4);
    EXPECT_EQ(history.end.stopped_by, "EarlyStopping");
    EXPECT_THAT(history.end.stop_reason, HasSubstr("loss did not improve for 3 epochs"));
  });
}

TEST(Stop, WatchingCallbacksMayDifferBetweenRanksDecidingOnesMayNot) {
  const auto data = learnable_data(20);
  const auto watching = test::errors_of_ranks(3, [&](Communicator& comm) {
    RankWorld world(comm);
    Recorder recorder;
    FitOptions options{.batch_size = 8};
    if (comm.rank() == 0) options.callbacks = {&recorder};
    world.trainer.fit(*data, options);
  });
  EXPECT_THAT(watching, ::testing::Each(""));
  const auto deciding = test::errors_of_ranks(3, [&](Communicator& comm) {
    RankWorld world(comm);
    Stopper stopper("Limit");
    FitOptions options{.batch_size = 8};
    if (comm.rank() == 0) options.callbacks = {&stopper};
    world.trainer.fit(*data, options);
  });
  EXPECT_THAT(deciding, ::testing::Each(HasSubstr("ranks disagree on callbacks: \"Limit\" on rank 0")));
}

}  // namespace
}  // namespace rondo
