// The loss and gradients of single steps on N ranks are those on one.
//
// Rounding of a network with ReLU grows chaotically over steps, so each step starts from the reference's
// weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "models/graph/graph_network.h"
#include "models/graph/weights.h"
#include "models/zoo/zoo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/loader.h"
#include "runtime/data/synthetic.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/gradsync/grad_sync.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/models/equivalence_place.h"

namespace rondo {
namespace {

using test::distance;
using test::Weights;

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
          const Batch batch{.rows = share.rows, .inputs = loaded.inputs, .labels = loaded.labels};
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

}  // namespace
}  // namespace rondo
