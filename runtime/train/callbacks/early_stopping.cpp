#include "runtime/train/callbacks/early_stopping.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {

namespace {

bool larger_is_better(std::string_view name) {
  return name.ends_with("acc") || name.ends_with("accuracy") || name.ends_with("auc");
}

}  // namespace

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options) : options_(options) {
  require(options.patience >= 0, "EarlyStopping: patience is {}; it must be 0 or more", options.patience);
  require(!std::isnan(options.min_delta) && !(options.baseline && std::isnan(*options.baseline)),
          "EarlyStopping: min_delta or baseline is not a number");
  options_.min_delta = std::abs(options.min_delta);
  if (options_.mode == EarlyStoppingOptions::Mode::kAuto) {
    options_.mode = larger_is_better(options.monitor) ? EarlyStoppingOptions::Mode::kMax
                                                      : EarlyStoppingOptions::Mode::kMin;
  }
}

bool EarlyStopping::improves(double value, double on) const {
  return options_.mode == EarlyStoppingOptions::Mode::kMin ? value < on - options_.min_delta
                                                           : value > on + options_.min_delta;
}

void EarlyStopping::on_train_begin(const RunReport& report) {
  std::vector<std::string> names{"loss"};
  names.insert(names.end(), report.metric_names.begin(), report.metric_names.end());
  const size_t training = names.size();
  for (size_t i = 0; report.validates && i < training; ++i) names.push_back("val_" + names[i]);
  if (std::find(names.begin(), names.end(), options_.monitor) == names.end()) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    raise<InvalidArgument>("EarlyStopping monitors '{}', but this run reports: {}{}", options_.monitor, known,
                           report.validates ? "" : "; val_ values need validation data");
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  best_ = options_.mode == EarlyStoppingOptions::Mode::kMin ? kInfinity : -kInfinity;
  best_epoch_ = report.initial_epoch;
  waited_ = 0;
  reason_.clear();
}

Decision EarlyStopping::on_epoch_end(const EpochReport& report) {
  const auto found = std::find_if(report.logs.begin(), report.logs.end(),
                                  [&](const auto& entry) { return entry.first == options_.monitor; });
  if (found == report.logs.end()) return Decision::kContinue;
  const double value = found->second;
  ++waited_;
  if (improves(value, best_)) {
    best_ = value;
    best_epoch_ = report.epoch;
    if (!options_.baseline || improves(value, *options_.baseline)) waited_ = 0;
    return Decision::kContinue;
  }
  if (waited_ < options_.patience || report.epoch == 0) return Decision::kContinue;
  reason_ = fmt::format("{} did not improve for {} epochs; its best was {:g} in epoch {}", options_.monitor,
                        waited_, best_, best_epoch_ + 1);
  return Decision::kStop;
}

}  // namespace rondo
