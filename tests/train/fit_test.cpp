// What ranks compute together is what one would compute alone.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <set>

#include "runtime/base/error.h"
#include "tests/train/training_world.h"

namespace rondo {
namespace {

using test::FakeNetworkOptions;
using test::learnable_data;
using test::RankWorld;
using test::Recorder;

constexpr BucketOptions kSmallBuckets{.first_bytes = 64, .bytes = 128};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> accuracies;
  std::vector<float> weights;  // of all parameters, and of those without the replicas' statistics
  std::vector<float> trained;
  History history;
};

// Trains on `ranks` ranks; checks that all end with the same bits and gives rank 0's.
Outcome train(int ranks, const TrainerOptions& trainer, FitOptions fit, const Source& data) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    // Ranks start from different weights: the trainer hands out those of rank 0.
    RankWorld world(comm, trainer, {.seed = static_cast<uint64_t>(comm.rank() + 1)});
    Recorder recorder;
    FitOptions options = fit;
    options.callbacks = {&recorder};
    Outcome& mine = outcomes[static_cast<size_t>(comm.rank())];
    mine.history = world.trainer.fit(data, options);
    mine.losses = recorder.losses;
    mine.accuracies = recorder.accuracies;
    mine.weights = world.network.weights();
    mine.trained = world.network.trained_weights();
  });
  for (const Outcome& other : outcomes) {
    EXPECT_EQ(other.weights, outcomes[0].weights);
    EXPECT_EQ(other.losses, outcomes[0].losses);
    EXPECT_EQ(other.history.history, outcomes[0].history.history);
  }
  return outcomes[0];
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

void expect_near(const Outcome& many, const Outcome& one) {
  ASSERT_EQ(many.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-6) << "step " << i;
    EXPECT_EQ(many.accuracies[i], one.accuracies[i]) << "step " << i;
  }
  EXPECT_LT(relative_distance(many.trained, one.trained), 3e-6);
}

class FitRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FitRanks, ::testing::Values(2, 3, 4, 8));

// Batches that the ranks do not divide, a short last one, and one with fewer rows than ranks.
TEST_P(FitRanks, EqualsOneRank) {
  const auto data = learnable_data(53);
  const TrainerOptions trainer{.optimizer = SGD{.learning_rate = 0.02, .momentum = 0.8},
                               .buckets = kSmallBuckets};
  for (const int64_t batch : {10, 16, 3, 1, 53, 100}) {
    const FitOptions fit{.batch_size = batch, .epochs = 3, .seed = 5};
    SCOPED_TRACE(batch);
    const Outcome one = train(1, trainer, fit, *data);
    expect_near(train(GetParam(), trainer, fit, *data), one);
    EXPECT_LT(one.history.at("loss").back(), one.history.at("loss").front());
  }
}

TEST_P(FitRanks, EqualsOneRankWithClippingByGlobalNorm) {
  const auto data = learnable_data(41);
  const TrainerOptions trainer{.optimizer = Adam{.learning_rate = 0.05, .clip = {.global_clipnorm = 0.1}},
                               .buckets = kSmallBuckets};
  const FitOptions fit{.batch_size = 7, .epochs = 2, .seed = 5};
  expect_near(train(GetParam(), trainer, fit, *data), train(1, trainer, fit, *data));
}

TEST_P(FitRanks, TwoRunsAreBitwiseEqual) {
  const auto data = learnable_data(53);
  const TrainerOptions trainer{.optimizer = RMSprop{}, .buckets = kSmallBuckets};
  const FitOptions fit{.batch_size = 10, .epochs = 2, .seed = 5};
  const Outcome first = train(GetParam(), trainer, fit, *data);
  const Outcome second = train(GetParam(), trainer, fit, *data);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weights, second.weights);
}

TEST_P(FitRanks, EvaluatesEverySampleOnce) {
  const int ranks = GetParam();
  const auto data = learnable_data(37);
  Logs expected;
  run_ranks(1, [&](Communicator& comm) { expected = RankWorld(comm).trainer.evaluate(*data, 10); });
  for (const int64_t batch : {1, 5, 10, 37, 64}) {
    std::vector<int64_t> rows(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](Communicator& comm) {
      RankWorld world(comm);
      const Logs logs = world.trainer.evaluate(*data, batch);
      ASSERT_EQ(logs.size(), 2u);
      EXPECT_EQ(logs[0].first, "loss");
      EXPECT_NEAR(logs[0].second, expected[0].second, 1e-12);
      EXPECT_EQ(logs[1].first, "accuracy");
      EXPECT_EQ(logs[1].second, expected[1].second);
      rows[static_cast<size_t>(comm.rank())] = world.network.evaluated_rows;
    });
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), 37) << batch;
  }
}

TEST_P(FitRanks, PredictsInTheOrderOfTheData) {
  const auto data = learnable_data(23);
  std::vector<float> expected;
  run_ranks(1, [&](Communicator& comm) { expected = RankWorld(comm).trainer.predict(*data, 23).at(0); });
  ASSERT_EQ(expected.size(), 23u * 3u);
  EXPECT_NE(expected[0], expected[3]);
  for (const int64_t batch : {1, 5, 8, 64}) {
    run_ranks(GetParam(), [&](Communicator& comm) {
      EXPECT_THAT(RankWorld(comm).trainer.predict(*data, batch), testing::ElementsAre(expected)) << batch;
    });
  }
}

TEST_P(FitRanks, ReplicaStatisticsAreMergedByRows) {
  const int ranks = GetParam();
  const auto data = learnable_data(11);
  std::vector<std::vector<float>> before(static_cast<size_t>(ranks));
  // One step of 11 rows: a rank's moving mean is 0.1 times the mean of its rows, so that the merged one is
  // 0.1 times the mean of all.
  run_ranks(ranks, [&](Communicator& comm) {
    RankWorld world(comm);
    world.trainer.fit(*data, {.batch_size = 11, .shuffle = false});
    const auto mean = world.network.parameter(2).value.memory<float>();
    std::vector<double> expected(5, 0.0);
    for (int64_t row = 0; row < 11; ++row) {
      std::vector<float> input(5);
      int32_t label = 0;
      data->read(row, input, std::as_writable_bytes(std::span(&label, 1)));
      for (size_t i = 0; i < 5; ++i) expected[i] += 0.1 * static_cast<double>(input[i]) / 11.0;
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(static_cast<double>(mean[i]), expected[i], 1e-7);
  });
}

TEST(Fit, PreparesTheRowsOfEveryShareBeforeTheFirstStep) {
  const auto data = learnable_data(23);
  const auto validation = learnable_data(9, 8);
  run_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm);
    std::set<std::pair<int64_t, Mode>> at_start;
    world.network.on_step = [&](const StepState& state) {
      if (state.step == 0) at_start = world.network.prepared;
    };
    world.trainer.fit(*data, {.batch_size = 9, .validation = validation.get(), .validation_batch_size = 6});
    // Training batches of 9, 9, 5 rows; validation batches of 6, 3: the second rank gets the odd row.
    const int64_t odd = comm.rank();
    EXPECT_THAT(at_start, ::testing::UnorderedElementsAre(
                              std::pair(4 + odd, Mode::kTraining), std::pair(2 + odd, Mode::kTraining),
                              std::pair(int64_t{3}, Mode::kInference), std::pair(1 + odd, Mode::kInference)));
    EXPECT_EQ(world.network.prepared, at_start);
  });
}

TEST(Fit, ReportsAndHistoryTellTheSameStory) {
  const auto data = learnable_data(20);
  const auto validation = learnable_data(7, 8);
  run_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm);
    Recorder recorder;
    const History history = world.trainer.fit(*data, {.batch_size = 8,
                                                      .epochs = 4,
                                                      .initial_epoch = 1,
                                                      .validation = validation.get(),
                                                      .callbacks = {&recorder}});
    EXPECT_EQ(recorder.run.steps_per_epoch, 3);
    EXPECT_EQ(recorder.run.samples_per_epoch, 20);
    EXPECT_EQ(recorder.run.rank, comm.rank());
    EXPECT_EQ(recorder.run.ranks, 2);
    EXPECT_TRUE(recorder.run.validates);
    ASSERT_EQ(recorder.steps.size(), 9u);
    EXPECT_EQ(history.epoch, (std::vector<int64_t>{1, 2, 3}));
    ASSERT_EQ(history.history.size(), 4u);
    EXPECT_EQ(history.history[0].first, "loss");
    EXPECT_EQ(history.history[1].first, "accuracy");
    EXPECT_EQ(history.history[2].first, "val_loss");
    EXPECT_EQ(history.history[3].first, "val_accuracy");
    for (size_t e = 0; e < 3; ++e) {
      const size_t s = 3 * e;
      EXPECT_EQ(recorder.steps[s].epoch, static_cast<int64_t>(e + 1));
      EXPECT_EQ(recorder.steps[s + 2].step, 2);
      EXPECT_EQ(recorder.steps[s + 2].samples, 4);
      const double mean =
          (8 * recorder.losses[s] + 8 * recorder.losses[s + 1] + 4 * recorder.losses[s + 2]) / 20;
      EXPECT_NEAR(history.at("loss")[e], mean, 1e-12);
      EXPECT_EQ(recorder.steps[s + 2].epoch_loss, history.at("loss")[e]);
      EXPECT_EQ(recorder.epochs[e].logs[2].second, history.at("val_loss")[e]);
      EXPECT_EQ(recorder.epochs[e].samples, 20);
    }
    EXPECT_NEAR(history.at("val_loss").back(), world.trainer.evaluate(*validation)[0].second, 1e-12);
    EXPECT_THROW(history.at("lr"), InvalidArgument);

    EXPECT_EQ(history.end.epochs_done, 3);
    EXPECT_EQ(history.end.steps_done, 9);
    EXPECT_EQ(history.end.samples, 60);
    EXPECT_EQ(history.end.stopped_by, "");
    ASSERT_EQ(history.end.ranks.size(), 2u);
    for (const Usage& usage : history.end.ranks) {
      EXPECT_GT(usage.seconds, 0.0);
      EXPECT_GT(usage.communication_seconds, 0.0);
      EXPECT_LE(usage.compute_seconds + usage.communication_seconds + usage.input_seconds, usage.seconds);
      EXPECT_GT(usage.peak_memory_bytes, 1 << 20);
    }
    EXPECT_EQ(recorder.end.samples, 60);
  });
}

// The order in which the samples' steps come, told by the state's rows and losses, does not depend on how the
// stream is cut into epochs.
TEST(Fit, StepsPerEpochCutAStreamOfPasses) {
  const auto data = learnable_data(20);
  const TrainerOptions trainer{};
  const Outcome whole = train(2, trainer, {.batch_size = 8, .epochs = 4, .seed = 2}, *data);  // 4 x 3 steps
  const Outcome shorter =
      train(2, trainer, {.batch_size = 8, .epochs = 6, .steps_per_epoch = 2, .seed = 2}, *data);
  const Outcome longer =
      train(2, trainer, {.batch_size = 8, .epochs = 3, .steps_per_epoch = 4, .seed = 2}, *data);
  EXPECT_EQ(shorter.losses, whole.losses);
  EXPECT_EQ(longer.losses, whole.losses);
  EXPECT_EQ(shorter.weights, whole.weights);
  EXPECT_EQ(longer.history.epoch.size(), 3u);
}

TEST(Fit, ASecondFitGoesOnWhereTheFirstEnded) {
  const auto data = learnable_data(20);
  const TrainerOptions trainer{.optimizer = Adam{}};
  const Outcome whole = train(2, trainer, {.batch_size = 8, .epochs = 4}, *data);
  run_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm, trainer);
    std::vector<int64_t> steps;
    world.network.on_step = [&](const StepState& state) { steps.push_back(state.step); };
    world.trainer.fit(*data, {.batch_size = 8, .epochs = 2});
    world.trainer.fit(*data, {.batch_size = 8, .epochs = 4, .initial_epoch = 2});
    EXPECT_EQ(world.network.trained_weights(), whole.trained);
    ASSERT_EQ(steps.size(), 12u);
    EXPECT_EQ(steps.back(), 11);
  });
}

TEST(Fit, ACosineScheduleEndsWithTheRun) {
  const auto data = learnable_data(20);
  const TrainerOptions trainer{.optimizer =
                                   SGD{.learning_rate = 0.1, .schedule = {.rule = CosineSchedule{}}}};
  run_ranks(1, [&](Communicator& comm) {
    RankWorld world(comm, trainer);
    Recorder recorder;
    world.trainer.fit(*data, {.batch_size = 8, .epochs = 4, .callbacks = {&recorder}});
    ASSERT_EQ(recorder.steps.size(), 12u);
    for (size_t i = 0; i < 12; ++i) {
      const double expected = 0.1 * (1.0 + std::cos(M_PI * static_cast<double>(i) / 12.0)) / 2.0;
      EXPECT_NEAR(recorder.steps[i].learning_rate, expected, 1e-8) << i;
    }
  });
}

}  // namespace
}  // namespace rondo
