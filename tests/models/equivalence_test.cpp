// N ranks train what one rank trains. Ranks are threads here; the sums go through the same GradSync and
// Trainer as over any other transport.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/graph/graph.h"
#include "models/graph/graph_network.h"
#include "models/graph/weights.h"
#include "models/layers/core.h"
#include "models/layers/normalization.h"
#include "models/zoo/zoo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/loader.h"
#include "runtime/data/synthetic.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/gradsync/grad_sync.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo {
namespace {

using Weights = std::vector<std::vector<float>>;

// ||a - b|| / ||b|| over all tensors.
double distance(const Weights& a, const Weights& b) {
  double difference = 0.0;
  double norm = 0.0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      const double x = static_cast<double>(a[i][j]);
      const double y = static_cast<double>(b[i][j]);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return std::sqrt(difference / norm);
}

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
        const auto device = make_cpu_device(1);
        const auto backend = make_cpu_backend(*device);
        Model model = experiment.make();
        Model parallel = multi_gpu_model(model, comm, *backend);
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

class RankEquivalence : public ::testing::TestWithParam<Experiment> {};

TEST_P(RankEquivalence, RanksTrainAsOne) {
  const Experiment& experiment = GetParam();
  const Outcome one = train(experiment, 1);
  ASSERT_GE(one.losses.size(), 50u);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int ranks : {2, 3, 4, 8}) {
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
    const Outcome first = train(experiment, 3);
    const Outcome second = train(experiment, 3);
    EXPECT_EQ(first.losses, second.losses) << experiment.what;
    EXPECT_EQ(first.weights, second.weights) << experiment.what;
    EXPECT_EQ(first.evaluation, second.evaluation) << experiment.what;
  }
}

// --- cnn: rounding grows chaotically over steps, so each step starts from the reference's weights.

struct StepResult {
  double loss = 0.0;
  Weights gradients;
};

// The loss and gradients of given steps, each from given weights, summed over ranks.
std::vector<StepResult> gradients_of_steps(int ranks, const std::vector<Weights>& at, int64_t batch_size,
                                           const SyntheticSource& data) {
  std::vector<StepResult> results(at.size());
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        const auto device = make_cpu_device(1);
        const auto backend = make_cpu_backend(*device);
        Model model = multi_gpu_model(zoo::cnn({28, 28, 1}, 10), comm, *backend);
        model.compile({.optimizer = SGD{}, .loss = "sparse_categorical_crossentropy"});
        GraphNetwork& network = model.network((batch_size + ranks - 1) / ranks);
        GradSync sync(comm, *device, network.parameters(), 1);
        const std::shared_ptr<const Source> borrowed{std::shared_ptr<const void>(), &data};
        Loader loader(borrowed, Sampler({.size = data.size(),
                                         .batch = batch_size,
                                         .seed = 5,
                                         .rank = comm.rank(),
                                         .world = comm.size()}));
        loader.start(0);
        for (size_t step = 0; step < at.size(); ++step) {
          model.set_weights(at[step]);
          const LoadedBatch& loaded = *loader.next();
          const Share share = loaded.share;
          const StepState state{.seed = 9,
                                .step = static_cast<int64_t>(step),
                                .first_row = share.first_row,
                                .inverse_batch = 1.0f / static_cast<float>(share.global_rows)};
          double sums[1] = {0.0};
          const Batch batch{.rows = share.rows, .inputs = {loaded.input}, .label = loaded.labels};
          const Execution on{.stream = network.stream(), .state = &state};
          if (share.rows > 0) network.forward(on, batch, Mode::kTraining, sums);
          sync.begin(on.stream);
          sync.tail()[0] = 0.0f;
          if (share.rows > 0) {
            network.backward(on, sync);
          } else {
            sync.contribute_zeros();
          }
          for (int b = 0; b < sync.buckets(); ++b) sync.wait(b);
          comm.all_reduce(span_of(std::span<const double>(sums)), span_of(std::span<double>(sums)),
                          ReduceOp::kSum)
              .wait();
          if (comm.rank() != 0) continue;
          results[step].loss = sums[0] / static_cast<double>(share.global_rows);
          for (const Parameter* parameter : network.parameters()) {
            results[step].gradients.push_back(read_canonical(parameter->grad, *backend, network.stream()));
          }
        }
      },
      {}, std::chrono::seconds(120));
  return results;
}

TEST(Equivalence, CnnGradientsOfEachStep) {
  constexpr int64_t kBatch = 21;
  constexpr size_t kSteps = 5;
  const SyntheticSource data({.size = 4 * kBatch + 6, .seed = 3});  // the fifth step has 6 rows
  // One rank walks along its own gradients.
  std::vector<Weights> at{zoo::cnn({28, 28, 1}, 10).get_weights()};
  while (at.size() < kSteps) {
    const StepResult last = gradients_of_steps(1, at, kBatch, data).back();
    Weights next = at.back();
    for (size_t i = 0; i < next.size(); ++i) {
      for (size_t j = 0; j < next[i].size(); ++j) next[i][j] -= 0.05f * last.gradients[i][j];
    }
    at.push_back(next);
  }
  const std::vector<StepResult> one = gradients_of_steps(1, at, kBatch, data);
  for (const int ranks : {2, 3, 4, 8}) {
    const std::vector<StepResult> got = gradients_of_steps(ranks, at, kBatch, data);
    double worst_loss = 0.0;
    double worst_gradient = 0.0;
    for (size_t step = 0; step < kSteps; ++step) {
      worst_loss = std::max(worst_loss, std::abs(got[step].loss - one[step].loss) / one[step].loss);
      worst_gradient = std::max(worst_gradient, distance(got[step].gradients, one[step].gradients));
    }
    EXPECT_LE(worst_loss, 1e-6) << ranks << " ranks";
    EXPECT_LE(worst_gradient, 1e-5) << ranks << " ranks";
    std::printf("cnn, %d ranks: losses within %.1e, gradients within %.1e\n", ranks, worst_loss,
                worst_gradient);
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
