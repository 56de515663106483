#include "runtime/train/callbacks/monitor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {

Monitor::Monitor(std::string owner, std::string name, MonitorMode mode, bool larger, double min_delta)
    : owner_(std::move(owner)),
      name_(std::move(name)),
      max_(mode == MonitorMode::kMax || (mode == MonitorMode::kAuto && larger)),
      min_delta_(std::abs(min_delta)) {
  require(!std::isnan(min_delta), "{}: min_delta is not a number", owner_);
}

bool Monitor::improves(double value, double than) const {
  return max_ ? value > than + min_delta_ : value < than - min_delta_;
}

double Monitor::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return max_ ? -kInfinity : kInfinity;
}

std::optional<double> Monitor::value(const Logs& logs) const {
  const auto found =
      std::find_if(logs.begin(), logs.end(), [&](const auto& entry) { return entry.first == name_; });
  if (found == logs.end()) return std::nullopt;
  return found->second;
}

void Monitor::check(const RunReport& report) const {
  std::vector<std::string> names{"loss"};
  names.insert(names.end(), report.metric_names.begin(), report.metric_names.end());
  const size_t training = names.size();
  for (size_t i = 0; report.validates && i < training; ++i) names.push_back("val_" + names[i]);
  if (std::find(names.begin(), names.end(), name_) != names.end()) return;
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  raise<InvalidArgument>("{} monitors '{}', but this run reports: {}{}", owner_, name_, known,
                         report.validates ? "" : "; val_ values need validation data");
}

bool ends_like_accuracy(std::string_view name) {
  return name.ends_with("acc") || name.ends_with("accuracy") || name.ends_with("auc");
}

bool mentions_accuracy(std::string_view name) {
  return name.find("acc") != std::string_view::npos;
}

}  // namespace rondo
