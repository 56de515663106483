#pragma once

#include <functional>
#include <string>
#include <utility>

#include "runtime/train/callback.h"

namespace rondo {

// Functions of the user's, each called where the callback function of that name is; empty ones are left out.
struct LambdaCallbackOptions {
  std::function<void(const RunReport&)> on_train_begin = {};
  std::function<void(int64_t epoch)> on_epoch_begin = {};
  std::function<void(const StepReport&)> on_step_end = {};  // Keras' on_batch_end
  std::function<void(const EpochReport&)> on_epoch_end = {};
  std::function<void(const EndReport&)> on_train_end = {};
};

// Keras' LambdaCallback. It only watches, so ranks need not have the same ones.
class LambdaCallback : public Callback {
 public:
  explicit LambdaCallback(LambdaCallbackOptions functions) : functions_(std::move(functions)) {}

  std::string name() const override { return "LambdaCallback"; }
  bool decides() const override { return false; }
  void on_train_begin(const RunReport& report) override { call(functions_.on_train_begin, report); }
  void on_epoch_begin(int64_t epoch) override { call(functions_.on_epoch_begin, epoch); }
  Decision on_step_end(const StepReport& report) override { return call(functions_.on_step_end, report); }
  Decision on_epoch_end(const EpochReport& report) override { return call(functions_.on_epoch_end, report); }
  void on_train_end(const EndReport& report) override { call(functions_.on_train_end, report); }

 private:
  template <class Function, class Report>
  static Decision call(const Function& function, const Report& report) {
    if (function) function(report);
    return Decision::kContinue;
  }

  LambdaCallbackOptions functions_;
};

}  // namespace rondo
