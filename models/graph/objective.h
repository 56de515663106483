#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
  bool weighted = false;  // rows count as the weights of the output's losses say

  int64_t sums() const { return loss ? 1 : sums_of(metric, thresholds); }
  // Of this many rows, from sums() sums; NaN without rows. Of a weighted one, `rows` is the sum of their
  // weights, and the value is 0 where that is 0.
  double of(std::span<const double> sums_of_rows, double rows) const;
};

// What an output is trained on and measured by.
struct Objective {
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  std::vector<NamedMetric> metrics = {};
  bool from_logits = false;
  float label_smoothing = 0.0f;
  float delta = 1.0f;
  bool sum = false;      // the loss of a batch is the sum over its samples, not their mean
  size_t output = 0;     // which one of the model's
  bool has_loss = true;  // false: it is measured only, on such labels as `loss` takes
  double weight = 1.0;   // of its loss in the network's

  // Whether it needs the sum of the weights.
  bool counts_weights() const;
};

// What a network is trained on and measured by: the sum of its outputs' losses, each times its weight, and of
// the penalties.
//
// A pass writes sums over its rows. Where there is one loss of weight 1, the first is loss and penalties
// together; else the first is the penalties, and the losses follow, unweighted. Behind them come, output by
// output, the sums of its metrics and, for those that are weighted, the sum of its weights.
struct Objectives {
  std::vector<Objective> outputs;  // those that are trained or measured, in the order of the model's
  std::vector<std::string> loss_names = {};  // under which losses are reported by themselves; empty: not

  Objectives(Objective only) : outputs{std::move(only)} {}  // NOLINT: of a model with one output
  explicit Objectives(std::vector<Objective> all) : outputs(std::move(all)) {}

  bool splits_loss() const;
  size_t loss_count() const;  // sums of losses and penalties
  size_t sum_count() const;
  bool sums_loss() const;  // Objective::sum of all that have a loss
  // Of the values behind the loss.
  std::vector<std::string> value_names() const;
  // The loss, and the values behind it, of so many rows.
  void values_of(std::span<const double> sums, double rows, std::span<double> values) const;
};

}  // namespace rondo
