#pragma once

#include <string>
#include <vector>

#include "runtime/train/callback.h"

namespace rondo {

// Calls a rank's callbacks in their order and keeps its vote. What a callback throws gets its name, except
// errors that come from other ranks.
class CallbackList {
 public:
  explicit CallbackList(std::vector<Callback*> callbacks) : callbacks_(std::move(callbacks)) {}

  void train_begin(const RunReport& report, TrainingControl& control);
  void epoch_begin(int64_t epoch);
  void step_end(const StepReport& report);
  void epoch_end(EpochReport& report);
  void train_end(const EndReport& report);

  // Whether a callback decides anything: equal on all ranks.
  bool decides() const;
  // Whether a callback of this rank has asked to stop, and the first that did.
  bool wants_stop() const { return stopper_ != nullptr; }
  std::string stopper() const { return stopper_ != nullptr ? stopper_->name() : std::string(); }
  std::string reason() const { return stopper_ != nullptr ? stopper_->reason() : std::string(); }

 private:
  std::vector<Callback*> callbacks_;
  Callback* stopper_ = nullptr;
};

}  // namespace rondo
