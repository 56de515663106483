// What the parts of the trainer share. Internal to this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/gradsync/grad_sync.h"
#include "runtime/kernels/step.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/replica_statistics.h"
#include "runtime/train/trainer.h"

namespace rondo {

// Where a trainable parameter lies, in elements.
struct ParameterPlace {
  int bucket = 0;
  int64_t offset = 0;
};

struct TrainerState {
  Communicator& comm;
  KernelBackend& backend;
  Network& network;
  std::unique_ptr<Stream> stream = {};  // all passes and updates
  std::unique_ptr<Optimizer> optimizer = {};
  std::unique_ptr<GradSync> sync = {};
  std::unique_ptr<ReplicaStatistics> statistics = {};
  std::unique_ptr<LossScaleKernel> loss_scaler = {};  // none without loss scaling
  Buffer loss_scale = {};                             // a LossScale on the device
  LossScale known_scale = {};                         // the same after the last step that was reported
  std::unordered_map<const Parameter*, ParameterPlace> places = {};
  int64_t steps_done = 0;           // over all fits: schedules, Adam's t, and dropout count them
  double collective_seconds = 0.0;  // in collectives other than those of the steps

  size_t metric_count() const;
  Device& device() const;
  void scale_losses(const LossScaling& scaling);
  // How many steps are queued behind the one whose results the host waits for. On hosts there is no queue.
  int run_ahead() const;
};

// "loss", then the network's metrics.
std::vector<std::string> value_names(Network& network);

// Runs `action`; what it throws is told to the other ranks, with where() in front, before it is rethrown. An
// error that comes from another rank is passed on as it is.
void tell_peers(Communicator& comm, const std::function<std::string()>& where,
                const std::function<void()>& action);

}  // namespace rondo
