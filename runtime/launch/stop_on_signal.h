#pragma once

#include <string>

#include "runtime/launch/world.h"
#include "runtime/train/callback.h"

namespace rondo {

// Votes to stop after a signal (Ctrl-C, the launcher's SIGTERM), so that the step is finished and logs are
// written.
class StopOnSignal final : public Callback {
 public:
  // The world must outlive the callback.
  explicit StopOnSignal(const World& world) : world_(world) {}

  std::string name() const override { return "a signal"; }
  Decision on_step_end(const StepReport&) override { return decision(); }
  Decision on_epoch_end(const EpochReport&) override { return decision(); }

 private:
  Decision decision() const { return world_.stop_signal() != 0 ? Decision::kStop : Decision::kContinue; }

  const World& world_;
};

}  // namespace rondo
