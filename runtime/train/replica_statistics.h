#pragma once

#include <cstdint>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/tensor/parameter.h"

namespace rondo {

class Communicator;

// What forward passes learn by themselves (moving means and variances) differs between replicas: each saw its
// own rows. Merging replaces them on every rank by the mean over ranks, weighted by the rows that each rank
// trained on since the last merge.
class ReplicaStatistics {
 public:
  // The parameters that are not trainable; they must be float32. Everything that writes them is queued on
  // `stream`.
  ReplicaStatistics(Communicator& comm, Stream& stream, const ParameterList& parameters);

  // A training step: this rank's rows and all ranks'.
  void saw(int64_t rows, int64_t global_rows) {
    rows_ += rows;
    global_rows_ += global_rows;
  }
  // Collective. Waits for the stream, and queues the copy of the merged values. Costs nothing when no step
  // came since the last merge.
  void merge();

 private:
  Communicator& comm_;
  Stream& stream_;
  ParameterList parameters_;
  Buffer values_;                 // all of them, on their way between device and host
  std::vector<double> weighted_;  // the same, times this rank's weight
  int64_t rows_ = 0;
  int64_t global_rows_ = 0;
};

}  // namespace rondo
