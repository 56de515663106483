#include "runtime/train/callbacks/reduce_lr_on_plateau.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace rondo {

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options)
    : options_(options),
      monitor_(name(), options.monitor, options.mode, mentions_accuracy(options.monitor), options.min_delta) {
  require(options.factor >= 0.0 && options.factor < 1.0,
          "ReduceLROnPlateau: factor is {}; it must lie in [0, 1), or the rate would not fall",
          options.factor);
  require(options.patience >= 0, "ReduceLROnPlateau: patience is {}; it must be 0 or more", options.patience);
  require(options.cooldown >= 0, "ReduceLROnPlateau: cooldown is {}; it must be 0 or more", options.cooldown);
  require(options.min_lr >= 0.0 && std::isfinite(options.min_lr),
          "ReduceLROnPlateau: min_lr is {}; it must be a number of at least 0", options.min_lr);
}

void ReduceLROnPlateau::on_train_begin(const RunReport& report) {
  monitor_.check(report);
  best_ = monitor_.worst();
  waited_ = cooling_ = 0;
}

void ReduceLROnPlateau::add_logs(Logs& logs) {
  set_log(logs, "lr", control_->learning_rate());
}

Decision ReduceLROnPlateau::on_epoch_end(const EpochReport& report) {
  const auto value = monitor_.value(report.logs);
  if (!value) return Decision::kContinue;
  if (cooling_ > 0) {
    --cooling_;
    waited_ = 0;
  }
  if (monitor_.improves(*value, best_)) {
    best_ = *value;
    waited_ = 0;
  } else if (cooling_ == 0) {
    const double rate = control_->learning_rate();
    if (++waited_ >= options_.patience && rate > options_.min_lr) {
      control_->set_learning_rate(std::max(rate * options_.factor, options_.min_lr));
      cooling_ = options_.cooldown;
      waited_ = 0;
    }
  }
  return Decision::kContinue;
}

}  // namespace rondo
