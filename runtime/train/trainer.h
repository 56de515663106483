// Trainer: the training loop over ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gradsync/bucket_plan.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/callback.h"

namespace rondo {

class Communicator;
class KernelBackend;
class Network;
class Source;

struct TrainerOptions {
  OptimizerConfig optimizer = SGD{};
  BucketOptions buckets = {};
};

struct FitOptions {
  int64_t batch_size = 32;  // global: shared by the ranks
  int64_t epochs = 1;       // index of the last epoch, as in Keras: training runs from initial_epoch to here
  int64_t initial_epoch = 0;
  int64_t steps_per_epoch = 0;  // 0: one pass over the data
  bool shuffle = true;
  uint64_t seed = 0;
  const Source* validation = nullptr;  // evaluated after each epoch
  int64_t validation_batch_size = 0;   // 0: batch_size
  int loader_threads = 1;
  std::vector<Callback*> callbacks = {};
};

// Keras' History: for each name of the logs one value per epoch, in the order of the logs.
struct History {
  std::vector<int64_t> epoch;
  std::vector<std::pair<std::string, std::vector<double>>> history;
  EndReport end;

  // Values of `name`; throws InvalidArgument that lists the names.
  const std::vector<double>& at(const std::string& name) const;
};

class Trainer {
 public:
  // Collective. Broadcasts rank 0's parameters, lays them into buckets, and agrees with the other ranks on
  // everything that must be equal; throws MismatchError on every rank where it is not. The references must
  // outlive the trainer.
  Trainer(Communicator& comm, KernelBackend& backend, Network& network, const TrainerOptions& options);
  ~Trainer();

  // Collective. Throws InvalidArgument for options out of range, before any step.
  History fit(const Source& data, const FitOptions& options);
  // Collective. Means over all samples, each counted once: loss, then metrics. No parameter changes, except
  // that replica statistics (moving means) are merged over ranks first, weighted by the samples each rank
  // saw.
  Logs evaluate(const Source& data, int64_t batch_size = 32);
  // Collective; every rank gets all rows, in the order of the data.
  std::vector<float> predict(const Source& data, int64_t batch_size = 32);

  Optimizer& optimizer();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
