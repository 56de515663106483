#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/train/callback.h"

namespace rondo {

enum class MonitorMode : uint8_t { kAuto, kMin, kMax };

// A value of the logs that a callback follows, and what counts as better.
class Monitor {
 public:
  // `owner` is the callback, for messages. kAuto: `larger` says whether larger is better. Throws
  // InvalidArgument when min_delta is not a number; its sign does not matter.
  Monitor(std::string owner, std::string name, MonitorMode mode, bool larger, double min_delta);

  const std::string& name() const { return name_; }
  // Better than `than` by more than min_delta; NaN never is.
  bool improves(double value, double than) const;
  // What every number is better than.
  double worst() const;
  std::optional<double> value(const Logs& logs) const;
  // Throws InvalidArgument that lists the run's values when this one is not among them.
  void check(const RunReport& report) const;

 private:
  std::string owner_, name_;
  bool max_;
  double min_delta_;
};

// Keras' rules for kAuto: of EarlyStopping, and of ReduceLROnPlateau and ModelCheckpoint.
bool ends_like_accuracy(std::string_view name);
bool mentions_accuracy(std::string_view name);

}  // namespace rondo
