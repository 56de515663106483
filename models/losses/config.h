// How losses and metrics are asked for: by name, or by name with settings.
//
//   model.compile({.loss = "mse", .metrics = {"accuracy"}});
//   model.compile({.loss = {"categorical_crossentropy", {.label_smoothing = 0.1}},
//                  .metrics = {"accuracy", {"top_k_categorical_accuracy", {.k = 3}}}});
//
// Models with several outputs take one loss and one list of metrics for all of them, or for each output one,
// in the order of the outputs or by their names:
//
//   model.compile({.loss = std::vector<LossConfig>{"mse", "binary_crossentropy"}, .loss_weights = {1.0,
//   0.2}}); using Losses = std::map<std::string, LossConfig>; using Metrics = std::map<std::string,
//   std::vector<MetricConfig>>; model.compile({.loss = Losses{{"main", "mse"}}, .metrics = Metrics{{"main",
//   {"mae"}}}});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rondo {

enum class Reduction : uint8_t {
  kSumOverBatchSize,  // Keras' default: the mean over everything, whatever the weights of samples
  kSum,               // the sum over the global batch; gradients grow with it
};

struct LossSettings {
  // Of crossentropies: the model's output is logits. (Where the model ends in the softmax or sigmoid that
  // belongs to it, a crossentropy works from the logits in front of that by itself, as in tf.keras.)
  bool from_logits = false;
  double label_smoothing = 0.0;                        // of categorical and binary crossentropy, in [0, 1]
  double delta = 1.0;                                  // of huber
  Reduction reduction = Reduction::kSumOverBatchSize;  // kSum: not in models with regularizers
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

// One T for every output of a model, or one for each: in their order, or by name.
template <class T>
using PerOutput = std::variant<T, std::vector<T>, std::map<std::string, T>>;

class OutputLosses {
 public:
  OutputLosses() = default;
  OutputLosses(const char* all, const LossSettings& settings = {})  // NOLINT: names are losses
      : value_(LossConfig(all, settings)) {}
  OutputLosses(std::string all, const LossSettings& settings = {})  // NOLINT
      : value_(LossConfig(std::move(all), settings)) {}
  OutputLosses(LossConfig all) : value_(std::move(all)) {}                         // NOLINT
  OutputLosses(std::vector<LossConfig> in_order) : value_(std::move(in_order)) {}  // NOLINT: "" is no loss
  OutputLosses(std::map<std::string, LossConfig> by_name) : value_(std::move(by_name)) {}  // NOLINT
  const PerOutput<LossConfig>& value() const { return value_; }

 private:
  PerOutput<LossConfig> value_;
};

class OutputMetrics {
 public:
  using List = std::vector<MetricConfig>;

  OutputMetrics() = default;
  OutputMetrics(std::initializer_list<MetricConfig> all) : value_(List(all)) {}       // NOLINT
  OutputMetrics(List all) : value_(std::move(all)) {}                                 // NOLINT
  OutputMetrics(std::vector<List> in_order) : value_(std::move(in_order)) {}          // NOLINT
  OutputMetrics(std::map<std::string, List> by_name) : value_(std::move(by_name)) {}  // NOLINT
  const PerOutput<List>& value() const { return value_; }

 private:
  PerOutput<List> value_;
};

// Of the outputs' losses in the total; 1 where nothing is said.
class LossWeights {
 public:
  LossWeights() = default;
  LossWeights(std::initializer_list<double> in_order) : value_(std::vector<double>(in_order)) {}  // NOLINT
  LossWeights(std::vector<double> in_order) : value_(std::move(in_order)) {}                      // NOLINT
  LossWeights(std::map<std::string, double> by_name) : value_(std::move(by_name)) {}              // NOLINT
  const PerOutput<double>& value() const { return value_; }

 private:
  PerOutput<double> value_ = 1.0;
};

// Weights of samples' losses: for every output those given, or for each output its own; see WeightedSource.
class SampleWeights {
 public:
  using List = std::vector<float>;

  SampleWeights() = default;
  SampleWeights(std::initializer_list<float> all) : value_(List(all)) {}              // NOLINT
  SampleWeights(List all) : value_(std::move(all)) {}                                 // NOLINT
  SampleWeights(std::vector<List> in_order) : value_(std::move(in_order)) {}          // NOLINT: {} is all 1
  SampleWeights(std::map<std::string, List> by_name) : value_(std::move(by_name)) {}  // NOLINT
  const PerOutput<List>& value() const { return value_; }
  bool empty() const {
    const List* all = std::get_if<List>(&value_);
    return all != nullptr && all->empty();
  }

 private:
  PerOutput<List> value_;
};

}  // namespace rondo
