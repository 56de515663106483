#pragma once

#include <vector>

#include "runtime/train/batch_stream.h"
#include "runtime/train/network.h"
#include "runtime/train/trainer_state.h"

namespace rondo {

// Makes the network ready for this rank's share of every batch of a pass: full ones and the last one.
void prepare_shares(Network& network, const SamplerOptions& options, Mode mode);
// This rank's part of unshuffled passes over `source`.
SamplerOptions in_order(const Communicator& comm, const Source& source, int64_t batch_size);

// A forward pass over one data set, prepared once and run after every epoch.
class Evaluation {
 public:
  // Local: makes the loader and prepares the network.
  Evaluation(TrainerState& state, const Source& source, int64_t batch_size, int workers);

  // Collective. Means over all samples, each counted once: loss, then metrics.
  const std::vector<double>& run();

  double wait_seconds() const { return batches_.wait_seconds(); }

 private:
  TrainerState& state_;
  const Source& source_;
  BatchStream batches_;
  Batch batch_;
  std::vector<double> sums_;   // of one batch
  std::vector<double> total_;  // of all, and behind them the number of samples
  std::vector<double> means_;
};

// Points `batch` at the loaded rows: on hosts they are used where they lie.
void assign(Batch& batch, const LoadedBatch& loaded);

}  // namespace rondo
