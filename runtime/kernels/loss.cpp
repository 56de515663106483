#include <cmath>

#include "runtime/base/error.h"
#include "runtime/kernels/loss_rules.h"

namespace rondo {

void check_loss(const LossSpec& spec) {
  require(spec.label_smoothing >= 0.0f && spec.label_smoothing <= 1.0f,
          "label_smoothing is {}; it must lie in [0, 1]", spec.label_smoothing);
  require(spec.label_smoothing == 0.0f || spec.loss == Loss::kCategoricalCrossentropy ||
              spec.loss == Loss::kBinaryCrossentropy,
          "label_smoothing is {}, but only categorical and binary crossentropy smooth labels",
          spec.label_smoothing);
  require(spec.delta > 0.0f && std::isfinite(spec.delta), "delta is {}; it must be positive", spec.delta);
}

void check_metric(const MetricSpec& spec) {
  require(spec.threshold > 0.0f && spec.threshold < 1.0f, "threshold is {}; it must lie between 0 and 1",
          spec.threshold);
  require(spec.k >= 1, "k is {}; it must be at least 1", spec.k);
  require(spec.thresholds >= 2, "the number of thresholds is {}; it must be at least 2", spec.thresholds);
}

}  // namespace rondo
