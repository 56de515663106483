#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/train/callback.h"

namespace rondo {

// Sets the optimizer's base rate at the beginning of each epoch to schedule(epoch from 0, current rate), and
// adds `lr` to the logs: tf.keras' callback. Runs on every rank; the ranks must come to the same rate.
class LearningRateScheduler : public Callback {
 public:
  using Function = std::function<double(int64_t epoch, double rate)>;
  // Throws InvalidArgument for an empty function.
  explicit LearningRateScheduler(Function schedule);

  std::string name() const override { return "LearningRateScheduler"; }
  void attach(TrainingControl& control) override { control_ = &control; }
  // Throws InvalidArgument, with the epoch, unless the new rate is a number of at least 0.
  void on_epoch_begin(int64_t epoch) override;
  void add_logs(Logs& logs) override;

 private:
  Function schedule_;
  TrainingControl* control_ = nullptr;
};

}  // namespace rondo
