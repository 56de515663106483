#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/loss.h"

namespace rondo {

// How a metric's value comes from its sums over rows.
enum class MetricValue : uint8_t {
  kMean,       // sums[0] / rows
  kRootMean,   // its square root
  kNegative,   // -sums[0] / rows
  kPrecision,  // tp / (tp + fp) of kConfusion; 0 without any
  kRecall,     // tp / (tp + fn)
  kRocArea,    // of kHistogram, by Keras' thresholds and trapezoids
  kPrArea,     // ... and Keras' interpolation between them
};

struct NamedMetric {
  std::string name;  // as reported: "accuracy"
  Metric metric = Metric::kSparseCategoricalAccuracy;
  std::optional<Loss> loss = std::nullopt;  // the mean of a loss, in the place of `metric`
  MetricValue value = MetricValue::kMean;
  int64_t k = 5;
  float threshold = 0.5f;
  int64_t thresholds = 200;

  int64_t sums() const { return loss ? 1 : sums_of(metric, thresholds); }
  // Of this many rows, from sums() sums; NaN without rows.
  double of(std::span<const double> sums_of_rows, double rows) const;
};

// What a network is trained on and measured by.
struct Objective {
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  std::vector<NamedMetric> metrics = {};
  bool from_logits = false;
  float label_smoothing = 0.0f;
  float delta = 1.0f;
  bool sum = false;  // the loss of a batch is the sum over its samples, not their mean
};

}  // namespace rondo
