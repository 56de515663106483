#include "runtime/train/callbacks/learning_rate_scheduler.h"

#include <cmath>
#include <utility>

#include "runtime/base/error.h"

namespace rondo {

LearningRateScheduler::LearningRateScheduler(Function schedule) : schedule_(std::move(schedule)) {
  require(static_cast<bool>(schedule_), "LearningRateScheduler: the schedule is an empty function");
}

void LearningRateScheduler::on_epoch_begin(int64_t epoch) {
  const double rate = schedule_(epoch, control_->learning_rate());
  require(rate >= 0.0 && std::isfinite(rate),
          "LearningRateScheduler: the rate of epoch {} is {}; it must be a number of at least 0", epoch + 1,
          rate);
  control_->set_learning_rate(rate);
}

void LearningRateScheduler::add_logs(Logs& logs) {
  set_log(logs, "lr", control_->learning_rate());
}

}  // namespace rondo
