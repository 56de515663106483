#pragma once

#include <string>

#include "runtime/train/callback.h"

namespace rondo {

// Stops the run when the loss of a step is NaN or infinite, as Keras' callback does; not for steps that loss
// scaling skipped. Nothing is thrown: the caller sees stopped_by "TerminateOnNaN" and, in stop_reason, where
// it happened and what may help.
class TerminateOnNaN : public Callback {
 public:
  std::string name() const override { return "TerminateOnNaN"; }
  std::string reason() const override { return reason_; }
  void on_train_begin(const RunReport& report) override;
  Decision on_step_end(const StepReport& report) override;

 private:
  RunReport run_;
  std::string reason_;
};

}  // namespace rondo
