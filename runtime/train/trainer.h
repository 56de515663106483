// Trainer: the training loop over ranks.
//
// All functions are collective: every rank calls them in the same order with the same options and data. What
// differs is found before the first step and named on every rank. When one rank fails later, the others stop
// with PeerError that tells why; the communicator is then used up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/precision.h"
#include "runtime/gradsync/bucket_plan.h"
#include "runtime/kernels/step.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/callback.h"

namespace rondo {

class Communicator;
class KernelBackend;
class Network;
class Source;
struct Parameter;
struct Tensor;
struct TrainerState;

struct TrainerOptions {
  OptimizerConfig optimizer = SGD{};
  BucketOptions buckets = {};
  // What the network computes in: equal on all ranks. For kF16 the trainer scales the gradients, see step.h.
  // A step in which one is not finite changes neither weights nor the optimizer's state, and its number is
  // not counted by the optimizer: by Adam's correction at once, by schedules when the host has heard of it.
  Precision precision = Precision::kF32;
  LossScaling loss_scaling = {};
};

struct FitOptions {
  int64_t batch_size = 32;  // global: shared by the ranks
  int64_t epochs = 1;       // index of the last epoch, as in Keras: training runs from initial_epoch to here
  int64_t initial_epoch = 0;
  // 0: one pass over the data. Otherwise the epochs cut an endless stream of passes, each in its own order,
  // into pieces of this many batches: no sample comes twice before all came once.
  int64_t steps_per_epoch = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  const Source* validation = nullptr;           // evaluated after each epoch
  int64_t validation_batch_size = 0;            // 0: batch_size
  int64_t validation_freq = 1;                  // ... after those whose number (from 1) it divides
  std::vector<int64_t> validation_epochs = {};  // ... or only after these, numbered from 1
  int loader_threads = 1;                       // 0: batches are read by the training thread
  // Captures the steps of full batches once (as CUDA graphs) and then replays them, which takes the host a
  // single launch. Where that cannot be done (hosts, gradients that go through host memory, a network whose
  // passes change) steps are queued kernel by kernel, with the same results.
  bool replay_steps = true;
  std::vector<Callback*> callbacks = {};
};

// Keras' History: for each name of the logs one value per epoch that had it, in the order in which the names
// came up: loss, metrics, val_loss, val_ metrics (as tf.keras; Keras 2.2 and 2.3 put val_ first).
struct History {
  std::vector<int64_t> epoch;
  std::vector<std::pair<std::string, std::vector<double>>> history;
  EndReport end;

  // Values of `name`; throws InvalidArgument that lists the names.
  const std::vector<double>& at(const std::string& name) const;
};

class Trainer {
 public:
  // Agrees with the other ranks on version, optimizer, parameters and bucket plan, lays the parameters into
  // buckets and gives them rank 0's values. Throws MismatchError on every rank where something differs, and
  // InvalidArgument for optimizer settings out of range or parameters that are not float32. The references
  // must outlive the trainer.
  Trainer(Communicator& comm, KernelBackend& backend, Network& network, const TrainerOptions& options);
  ~Trainer();

  // Throws before any step: InvalidArgument for options out of range, MismatchError where ranks differ. The
  // optimizer's state and step count go on from an earlier fit. An epoch whose loss is not finite is not
  // validated: its val_ values are NaN. Under loss scaling, throws NumericError when gradients are not finite
  // even with a scale of 1, or in no step of the run.
  History fit(const Source& data, const FitOptions& options);
  // Means over all samples, each counted once: loss, then metrics. No parameter changes, except that replica
  // statistics (moving means) are merged over ranks first, weighted by the samples each rank saw.
  Logs evaluate(const Source& data, int64_t batch_size = 32);
  // Each of the network's outputs for all rows, on every rank, in the order of the data: (size, shape...).
  std::vector<std::vector<float>> predict(const Source& data, int64_t batch_size = 32);

  // Local. Waits until the steps queued so far are done: before callbacks look at the network's parameters on
  // devices that work by themselves.
  void synchronize();

  Optimizer& optimizer();
  // Local. What the optimizer keeps for a trainable parameter, in the order of slot_names(): device memory
  // laid out as the parameter's values. Throws InvalidArgument for other parameters.
  std::vector<Tensor> slots(const Parameter& parameter);
  // Training steps so far, over all fits, without those that were skipped: Keras' `iterations`, which
  // schedules and Adam's t count.
  int64_t steps_done() const;
  // Local, but for all ranks to call alike. Throws InvalidArgument for a negative number.
  void set_steps_done(int64_t steps);

 private:
  std::unique_ptr<TrainerState> state_;
};

}  // namespace rondo
