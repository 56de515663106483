// N ranks train what one rank trains, on hosts and on simulated GPUs. Ranks are threads here; the sums go
// through the same GradSync and Trainer as over any other transport.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/layers/core.h"
#include "models/layers/masking.h"
#include "models/layers/normalization.h"
#include "models/layers/pooling.h"
#include "models/layers/recurrent.h"
#include "models/layers/shape.h"
#include "models/zoo/zoo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/synthetic.h"
#include "tests/models/equivalence_place.h"

namespace rondo {
namespace {

using test::distance;
using test::Weights;

class RecordLosses : public Callback {
 public:
  std::string name() const override { return "record losses"; }
  Decision on_step_end(const StepReport& report) override {
    losses.push_back(report.loss);
    return Decision::kContinue;
  }
  std::vector<double> losses;
};

struct Experiment {
  std::string what;
  Model (*make)();
  int64_t batch_size = 48;
  int64_t samples = 443;  // the last batch of an epoch is short
  int64_t epochs = 5;
};

struct Outcome {
  std::vector<double> losses;
  Weights weights;
  Logs evaluation;
};

// Trains on N ranks; gives what rank 0 saw, after all ranks were found to hold the same weights.
Outcome train(const Experiment& experiment, int ranks) {
  const SyntheticSource data({.size = experiment.samples, .seed = 3});
  Outcome outcome;
  std::mutex mutex;
  std::vector<Weights> of_ranks;
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        const test::Place place = test::make_place(comm);
        Model model = experiment.make();
        Model parallel = multi_gpu_model(model, *place.comm, *place.backend);
        parallel.compile({.optimizer = SGD{.learning_rate = 0.01, .momentum = 0.9},
                          .loss = "sparse_categorical_crossentropy",
                          .metrics = {"accuracy"}});
        RecordLosses record;
        parallel.fit(data, {.batch_size = experiment.batch_size,
                            .epochs = experiment.epochs,
                            .seed = 11,
                            .callbacks = {&record}});
        const Logs evaluation = parallel.evaluate(data, 100);
        const std::lock_guard lock(mutex);
        of_ranks.push_back(model.get_weights());
        if (comm.rank() == 0) outcome = {record.losses, model.get_weights(), evaluation};
      },
      {}, std::chrono::seconds(120));
  for (const Weights& weights : of_ranks) EXPECT_EQ(weights, outcome.weights) << "ranks differ";
  return outcome;
}

void expect_equivalent(const Outcome& got, const Outcome& one, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(got.losses.size(), one.losses.size());
  double worst = 0.0;
  for (size_t i = 0; i < one.losses.size(); ++i) {
    worst = std::max(worst, std::abs(got.losses[i] - one.losses[i]) / std::abs(one.losses[i]));
  }
  const double weights = distance(got.weights, one.weights);
  EXPECT_LE(worst, 1e-5);
  EXPECT_LE(weights, 3e-5);
  EXPECT_NEAR(got.evaluation[0].second, one.evaluation[0].second, 1e-4 * one.evaluation[0].second);
  EXPECT_NEAR(got.evaluation[1].second, one.evaluation[1].second, 0.01);
  std::printf("%s: losses within %.1e, weights within %.1e\n", what.c_str(), worst, weights);
}

// Dropout inside of recurrent layers, a mask, penalties on results and constraints behind the update.
Model limited_sequences() {
  const auto in = layers::Input({.shape = {28, 28, 1}});
  auto x = layers::Reshape{.target_shape = {8, 98}}(in);
  x = layers::LSTM{.units = 12,
                   .return_sequences = true,
                   .activity_regularizer = {.l1 = 0.001, .l2 = 0.002},
                   .kernel_constraint = Constraint::max_norm(1.0),
                   .dropout = 0.25f,
                   .recurrent_dropout = 0.25f}(layers::Masking{}(x));
  x = layers::GlobalAveragePooling1D{}(x);
  return Model({in}, {layers::Dense{.units = 10,
                                    .activation = "softmax",
                                    .kernel_constraint = Constraint::min_max_norm(0.5, 2.0, 0.5),
                                    .bias_constraint = Constraint::non_neg()}(x)});
}

class RankEquivalence : public ::testing::TestWithParam<Experiment> {};

TEST_P(RankEquivalence, RanksTrainAsOne) {
  const Experiment& experiment = GetParam();
  const Outcome one = train(experiment, 1);
  ASSERT_GE(one.losses.size(), 50u);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int ranks : test::numbers_of_ranks()) {
    expect_equivalent(train(experiment, ranks), one,
                      experiment.what + ", " + std::to_string(ranks) + " ranks");
  }
}

// 443 samples: 10 steps of 48 rows, the last of 11, which 8 ranks share unevenly. With batches of 5, three of
// 8 ranks have no rows.
INSTANTIATE_TEST_SUITE_P(
    Models, RankEquivalence,
    ::testing::Values(Experiment{.what = "mlp",
                                 .make =
                                     [] {
                                       return zoo::mlp({28, 28, 1}, 10);
                                     }},
                      Experiment{.what = "mlp with dropout, batch 50",
                                 .make =
                                     [] {
                                       return zoo::mlp({28, 28, 1}, 10, {.dropout = 0.2f});
                                     },
                                 .batch_size = 50,
                                 .samples = 463},
                      Experiment{.what = "mlp with dropout, batch 5",
                                 .make =
                                     [] {
                                       return zoo::mlp({28, 28, 1}, 10, {.dropout = 0.2f});
                                     },
                                 .batch_size = 5,
                                 .samples = 128,
                                 .epochs = 2},
                      Experiment{.what = "limited sequences, batch 5",
                                 .make = limited_sequences,
                                 .batch_size = 5,
                                 .samples = 128,
                                 .epochs = 2},
                      Experiment{.what = "lenet5",
                                 .make =
                                     [] {
                                       return zoo::lenet5({28, 28, 1}, 10);
                                     }},
                      Experiment{.what = "lenet5, batch 5",
                                 .make =
                                     [] {
                                       return zoo::lenet5({28, 28, 1}, 10);
                                     },
                                 .batch_size = 5,
                                 .samples = 128,
                                 .epochs = 2}));

TEST(Equivalence, TwoRunsAreBitwiseEqual) {
  for (const Experiment& experiment : {Experiment{.what = "mlp",
                                      .make =
                                                      [] {
                                                        return zoo::mlp({28, 28, 1}, 10, {.dropout = 0.2f});
                                                      },
                                      .batch_size = 50,
                                      .samples = 463,
                                      .epochs = 1},
                                       Experiment{.what = "lenet5",
                                       .make =
                                                      [] {
                                                        return zoo::lenet5({28, 28, 1}, 10);
                                                      },
                                       .epochs = 1}}) {
    const Outcome first = train(experiment, test::numbers_of_ranks().back());
    const Outcome second = train(experiment, test::numbers_of_ranks().back());
    EXPECT_EQ(first.losses, second.losses) << experiment.what;
    EXPECT_EQ(first.weights, second.weights) << experiment.what;
    EXPECT_EQ(first.evaluation, second.evaluation) << experiment.what;
  }
}

// Each rank normalizes by its own sub-batch; evaluation uses moving statistics merged over ranks.
TEST(Equivalence, BatchNormalizationStatisticsAreMerged) {
  const Experiment experiment{
      .what = "batch normalization",
      .make =
          [] {
            return Model(Sequential({layers::Input({.shape = {28, 28, 1}}), layers::Flatten{},
                                     layers::Dense{.units = 16}, layers::BatchNormalization{},
                                     layers::Activation{.activation = "relu"},
                                     layers::Dense{.units = 10, .activation = "softmax"}}));
          },
      .epochs = 2};
  const Outcome two =
      train(experiment, 2);  // checks that ranks hold the same weights, moving statistics among them
  EXPECT_LT(two.losses.back(), two.losses.front());
  EXPECT_TRUE(std::isfinite(two.evaluation[0].second));
}

}  // namespace
}  // namespace rondo
