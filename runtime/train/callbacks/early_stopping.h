#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "runtime/train/callbacks/monitor.h"

namespace rondo {

struct EarlyStoppingOptions {
  using Mode = MonitorMode;

  std::string monitor = "val_loss";
  double min_delta = 0.0;               // a smaller change is no improvement; its sign does not matter
  int64_t patience = 0;                 // epochs without improvement before it stops; 0 acts like 1
  Mode mode = Mode::kAuto;              // auto: larger is better when the name ends with acc, accuracy or auc
  std::optional<double> baseline = {};  // epochs that do not beat it do not reset the patience
  // When it stops, the weights become again those of the best epoch, or of the first one when none was better
  // than the other. (When the run ends by itself they stay, as in Keras.)
  bool restore_best_weights = false;
};

// Stops when the monitored value has not improved for `patience` epochs: Keras' EarlyStopping as of
// tf.keras 2.15, which never stops in epoch 0 nor in an epoch that improved. NaN never improves.
class EarlyStopping : public Callback {
 public:
  // Throws InvalidArgument for a negative patience or a NaN.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});

  std::string name() const override { return "EarlyStopping"; }
  std::string reason() const override { return reason_; }
  void attach(TrainingControl& control) override { control_ = &control; }
  // Throws InvalidArgument that lists the run's values when the monitored one is not among them.
  void on_train_begin(const RunReport& report) override;
  Decision on_epoch_end(const EpochReport& report) override;

  double best() const { return best_; }
  int64_t best_epoch() const { return best_epoch_; }

 private:
  EarlyStoppingOptions options_;
  Monitor monitor_;
  TrainingControl* control_ = nullptr;
  WeightSnapshot best_weights_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  int64_t best_epoch_ = 0;
  int64_t waited_ = 0;
  std::string reason_;
};

}  // namespace rondo
