#pragma once

#include <vector>

#include "runtime/device/quiet_at_end.h"
#include "runtime/train/batch_stream.h"
#include "runtime/train/network.h"
#include "runtime/train/read_back.h"
#include "runtime/train/trainer_state.h"

namespace rondo {

// Makes the network ready for this rank's share of every batch of a pass: full ones and the last one.
void prepare_shares(Network& network, const SamplerOptions& options, Mode mode);
// This rank's part of unshuffled passes over `source`.
SamplerOptions in_order(const Communicator& comm, const Source& source, int64_t batch_size);

// A forward pass over one data set, prepared once and run after every epoch.
class Evaluation {
 public:
  // Local: makes the loader and prepares the network, through which no pass may be underway.
  Evaluation(TrainerState& state, const Source& source, int64_t batch_size, int workers);

  // Collective. Means over all samples, each counted once: loss, then metrics.
  const std::vector<double>& run();

  double wait_seconds() const { return batches_.wait_seconds(); }

 private:
  void add_oldest();

  TrainerState& state_;
  const Source& source_;
  const size_t values_;  // sums of loss and metrics
  BatchStream batches_;
  Buffer sums_;       // of one batch, on the device
  ReadBack results_;  // the same on the host
  // Of the batches underway: what the loss counts for, the rows of the batch where it is a sum over them.
  std::vector<double> loss_factors_;
  int64_t sent_ = 0, added_ = 0;
  std::vector<double> total_;  // of all, and behind them the number of samples
  std::vector<double> means_;
  QuietAtEnd quiet_;
};

}  // namespace rondo
