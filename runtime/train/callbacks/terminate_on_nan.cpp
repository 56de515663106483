#include "runtime/train/callbacks/terminate_on_nan.h"

#include <fmt/core.h>

#include <cmath>

namespace rondo {

void TerminateOnNaN::on_train_begin(const RunReport& report) {
  run_ = report;
  reason_.clear();
}

Decision TerminateOnNaN::on_step_end(const StepReport& report) {
  if (std::isfinite(report.loss) || report.skipped) return Decision::kContinue;
  if (reason_.empty()) {
    reason_ = fmt::format(
        "the loss is {} in epoch {}/{}, step {}/{}, at learning rate {:g}. Lower the learning rate, clip "
        "gradients, or look for NaN and extreme values in the data",
        report.loss, report.epoch + 1, run_.epochs, report.step + 1, run_.steps_per_epoch,
        report.learning_rate);
  }
  return Decision::kStop;
}

}  // namespace rondo
