#pragma once

#include <cstdint>
#include <string>

#include "runtime/train/callbacks/monitor.h"

namespace rondo {

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;                    // the rate is multiplied by it; in [0, 1)
  int64_t patience = 10;                  // epochs without improvement before that
  MonitorMode mode = MonitorMode::kAuto;  // auto: larger is better when the name contains acc
  double min_delta = 1e-4;
  int64_t cooldown = 0;  // epochs after a reduction that are not counted
  double min_lr = 0.0;   // the rate is not lowered below
};

// Lowers the optimizer's base rate when the monitored value has stopped improving: tf.keras' callback, with
// its order of cooldown, comparison and counting. Adds `lr` to the logs, the rate that the epoch was trained
// with. Runs on every rank.
class ReduceLROnPlateau : public Callback {
 public:
  // Throws InvalidArgument for a factor outside [0, 1), negative numbers and NaN.
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

  std::string name() const override { return "ReduceLROnPlateau"; }
  void attach(TrainingControl& control) override { control_ = &control; }
  // Throws InvalidArgument that lists the run's values when the monitored one is not among them.
  void on_train_begin(const RunReport& report) override;
  void add_logs(Logs& logs) override;
  Decision on_epoch_end(const EpochReport& report) override;

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  TrainingControl* control_ = nullptr;
  double best_ = 0.0;
  int64_t waited_ = 0;
  int64_t cooling_ = 0;
};

}  // namespace rondo
