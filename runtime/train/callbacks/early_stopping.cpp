#include "runtime/train/callbacks/early_stopping.h"

#include <cmath>

#include "runtime/base/error.h"

namespace rondo {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options),
      monitor_(name(), options.monitor, options.mode, ends_like_accuracy(options.monitor),
               options.min_delta) {
  require(options.patience >= 0, "EarlyStopping: patience is {}; it must be 0 or more", options.patience);
  require(!(options.baseline && std::isnan(*options.baseline)), "EarlyStopping: baseline is not a number");
}

void EarlyStopping::on_train_begin(const RunReport& report) {
  monitor_.check(report);
  best_ = monitor_.worst();
  best_epoch_ = report.initial_epoch;
  best_weights_.values.clear();
  waited_ = 0;
  reason_.clear();
}

Decision EarlyStopping::on_epoch_end(const EpochReport& report) {
  const auto value = monitor_.value(report.logs);
  if (!value) return Decision::kContinue;
  const bool better = monitor_.improves(*value, best_);
  if (options_.restore_best_weights && (better || best_weights_.values.empty())) {
    control_->save_weights(best_weights_);
  }
  ++waited_;
  if (better) {
    best_ = *value;
    best_epoch_ = report.epoch;
    if (!options_.baseline || monitor_.improves(*value, *options_.baseline)) waited_ = 0;
    return Decision::kContinue;
  }
  if (waited_ < options_.patience || report.epoch == 0) return Decision::kContinue;
  if (options_.restore_best_weights) control_->restore_weights(best_weights_);
  reason_ = fmt::format("{} did not improve for {} epochs; its best was {:g} in epoch {}{}", options_.monitor,
                        waited_, best_, best_epoch_ + 1,
                        options_.restore_best_weights ? ", whose weights are restored" : "");
  return Decision::kStop;
}

}  // namespace rondo
