// How losses and metrics are asked for: by name, or by name with settings.
//
//   model.compile({.loss = "mse", .metrics = {"accuracy"}});
//   model.compile({.loss = {"categorical_crossentropy", {.label_smoothing = 0.1}},
//                  .metrics = {"accuracy", {"top_k_categorical_accuracy", {.k = 3}}}});
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace rondo {

enum class Reduction : uint8_t {
  kSumOverBatchSize,  // Keras' default: the mean over everything, whatever the weights of samples
  kSum,               // the sum over the global batch; gradients grow with it
};

struct LossSettings {
  // Of crossentropies: the model's output is logits. (Where the model ends in the softmax or sigmoid that
  // belongs to it, a crossentropy works from the logits in front of that by itself, as in tf.keras.)
  bool from_logits = false;
  double label_smoothing = 0.0;  // of categorical and binary crossentropy, in [0, 1]
  double delta = 1.0;            // of huber
  Reduction reduction = Reduction::kSumOverBatchSize;
};

struct LossConfig : LossSettings {
  std::string name;  // see loss_by_name()

  LossConfig() = default;
  LossConfig(const char* loss, const LossSettings& settings = {})  // NOLINT: names are losses
      : LossSettings(settings), name(loss) {}
  LossConfig(std::string loss, const LossSettings& settings = {})  // NOLINT
      : LossSettings(settings), name(std::move(loss)) {}
};

struct MetricSettings {
  std::string name = {};      // as reported; empty: as the metric was given
  int64_t k = 5;              // of top-k accuracy
  double threshold = 0.5;     // of binary_accuracy, precision and recall
  int64_t thresholds = 200;   // of auc
  std::string curve = "ROC";  // of auc; or "PR"
};

struct MetricConfig : MetricSettings {
  std::string metric;  // see make_objective()

  MetricConfig() = default;
  MetricConfig(const char* text, MetricSettings settings = {})  // NOLINT: names are metrics
      : MetricSettings(std::move(settings)), metric(text) {}
  MetricConfig(std::string text, MetricSettings settings = {})  // NOLINT
      : MetricSettings(std::move(settings)), metric(std::move(text)) {}
};

}  // namespace rondo
