#include "models/losses/losses.h"

#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr std::pair<std::string_view, Loss> kLosses[] = {
    {"categorical_crossentropy", Loss::kCategoricalCrossentropy},
    {"sparse_categorical_crossentropy", Loss::kSparseCategoricalCrossentropy},
    {"binary_crossentropy", Loss::kBinaryCrossentropy},
    {"mean_squared_error", Loss::kMeanSquaredError},
    {"mse", Loss::kMeanSquaredError},
    {"mean_absolute_error", Loss::kMeanAbsoluteError},
    {"mae", Loss::kMeanAbsoluteError},
    {"mean_absolute_percentage_error", Loss::kMeanAbsolutePercentageError},
    {"mape", Loss::kMeanAbsolutePercentageError},
    {"mean_squared_logarithmic_error", Loss::kMeanSquaredLogarithmicError},
    {"msle", Loss::kMeanSquaredLogarithmicError},
    {"hinge", Loss::kHinge},
    {"squared_hinge", Loss::kSquaredHinge},
    {"categorical_hinge", Loss::kCategoricalHinge},
    {"kl_divergence", Loss::kKlDivergence},
    {"kullback_leibler_divergence", Loss::kKlDivergence},
    {"kld", Loss::kKlDivergence},
    {"poisson", Loss::kPoisson},
    {"log_cosh", Loss::kLogCosh},
    {"logcosh", Loss::kLogCosh},
    {"huber", Loss::kHuber},
    {"huber_loss", Loss::kHuber},
    {"cosine_similarity", Loss::kCosineSimilarity},
    {"cosine_proximity", Loss::kCosineSimilarity},
};

struct MetricEntry {
  std::string_view first;  // its name
  Metric metric;
  MetricValue value = MetricValue::kMean;
};
constexpr MetricEntry kMetrics[] = {
    {"binary_accuracy", Metric::kBinaryAccuracy},
    {"categorical_accuracy", Metric::kCategoricalAccuracy},
    {"sparse_categorical_accuracy", Metric::kSparseCategoricalAccuracy},
    {"top_k_categorical_accuracy", Metric::kTopKCategoricalAccuracy},
    {"sparse_top_k_categorical_accuracy", Metric::kSparseTopKCategoricalAccuracy},
    {"mean_squared_error", Metric::kMeanSquaredError},
    {"mse", Metric::kMeanSquaredError},
    {"mean_absolute_error", Metric::kMeanAbsoluteError},
    {"mae", Metric::kMeanAbsoluteError},
    {"root_mean_squared_error", Metric::kMeanSquaredError, MetricValue::kRootMean},
    {"rmse", Metric::kMeanSquaredError, MetricValue::kRootMean},
    {"precision", Metric::kConfusion, MetricValue::kPrecision},
    {"recall", Metric::kConfusion, MetricValue::kRecall},
    {"auc", Metric::kHistogram, MetricValue::kRocArea},
};

template <class Table>
std::string names(const Table& table) {
  std::string out;
  for (const auto& entry : table) {
    out += out.empty() ? "" : ", ";
    out += entry.first;
  }
  return out;
}

int64_t last_extent(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

bool sparse(Loss loss) {
  return loss == Loss::kSparseCategoricalCrossentropy;
}

bool takes_classes(const NamedMetric& metric) {
  if (metric.loss) return sparse(*metric.loss);
  return metric.metric == Metric::kSparseCategoricalAccuracy ||
         metric.metric == Metric::kSparseTopKCategoricalAccuracy;
}

NamedMetric metric_by_name(const std::string& given, Loss loss, const Shape& output) {
  // Keras' classes are named with large letters, their values with small ones.
  std::string name = given;
  for (const std::string_view of_class : {"AUC", "Precision", "Recall"}) {
    if (given != of_class) continue;
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  NamedMetric found{.name = name};
  const bool binary = last_extent(output) == 1;
  if (name == "accuracy" || name == "acc") {
    found.metric = binary         ? Metric::kBinaryAccuracy
                   : sparse(loss) ? Metric::kSparseCategoricalAccuracy
                                  : Metric::kCategoricalAccuracy;
    return found;
  }
  if (name == "crossentropy" || name == "ce") {
    found.loss = binary         ? Loss::kBinaryCrossentropy
                 : sparse(loss) ? Loss::kSparseCategoricalCrossentropy
                                : Loss::kCategoricalCrossentropy;
    return found;
  }
  for (const MetricEntry& known : kMetrics) {
    if (known.first != name) continue;
    found.metric = known.metric;
    found.value = known.value;
    return found;
  }
  for (const auto& [known, of] : kLosses) {
    if (known != name) continue;
    found.loss = of;
    if (of == Loss::kCosineSimilarity) found.value = MetricValue::kNegative;
    return found;
  }
  raise<InvalidArgument>("unknown metric \"{}\"; choose among accuracy, crossentropy, {}, {}", given,
                         names(kMetrics), names(kLosses));
}

NamedMetric make_metric(const MetricConfig& config, Loss loss, const Shape& output) {
  NamedMetric metric = metric_by_name(config.metric, loss, output);
  require(config.k >= 1, "metric \"{}\": k is {}; it must be at least 1", config.metric, config.k);
  require(config.threshold > 0.0 && config.threshold < 1.0,
          "metric \"{}\": threshold is {}; it must lie between 0 and 1", config.metric, config.threshold);
  require(config.thresholds >= 2, "metric \"{}\": thresholds is {}; it must be at least 2", config.metric,
          config.thresholds);
  require(config.curve == "ROC" || config.curve == "PR", "metric \"{}\": curve is \"{}\"; choose ROC or PR",
          config.metric, config.curve);
  if (!config.name.empty()) metric.name = config.name;
  if (metric.value == MetricValue::kRocArea && config.curve == "PR") metric.value = MetricValue::kPrArea;
  metric.k = config.k;
  metric.threshold = static_cast<float>(config.threshold);
  metric.thresholds = config.thresholds;
  return metric;
}

// As Keras: "auc", "auc_1", ...
void make_unique_names(std::vector<NamedMetric>& metrics) {
  std::set<std::string> taken{"loss"};
  for (NamedMetric& metric : metrics) {
    const std::string name = metric.name;
    for (int again = 1; !taken.insert(metric.name).second; ++again) {
      metric.name = fmt::format("{}_{}", name, again);
    }
  }
}

void check_numbers(const LossConfig& config, Loss loss) {
  const bool binary = loss == Loss::kBinaryCrossentropy, categorical = loss == Loss::kCategoricalCrossentropy;
  require(config.label_smoothing >= 0.0 && config.label_smoothing <= 1.0,
          "loss \"{}\": label_smoothing is {}; it must lie in [0, 1]", config.name, config.label_smoothing);
  require(config.label_smoothing == 0.0 || binary || categorical,
          "loss \"{}\" has no label_smoothing; categorical_crossentropy and binary_crossentropy have one",
          config.name);
  require(!config.from_logits || binary || categorical || sparse(loss),
          "loss \"{}\" has no from_logits; the crossentropies have one", config.name);
  require(config.delta > 0.0 && std::isfinite(config.delta), "loss \"{}\": delta is {}; it must be positive",
          config.name, config.delta);
}

// Labels of one sample for a loss.
Shape label_shape_of(Loss loss, const Shape& output) {
  if (!sparse(loss)) return output;
  return output.rank() == 0 ? Shape{} : Shape(output.extents().first(static_cast<size_t>(output.rank() - 1)));
}

}  // namespace

Loss loss_by_name(std::string_view name) {
  for (const auto& [known, loss] : kLosses) {
    if (known == name) return loss;
  }
  raise<InvalidArgument>("unknown loss \"{}\"; choose one of {}", name, names(kLosses));
}

std::string_view loss_name(Loss loss) {
  for (const auto& [name, known] : kLosses) {
    if (known == loss) return name;
  }
  raise<InternalError>("unknown loss {}", static_cast<int>(loss));
}

Objective make_objective(const LossConfig& loss, const std::vector<MetricConfig>& metrics,
                         const Shape& output) {
  Objective objective{.loss = loss_by_name(loss.name)};
  check_numbers(loss, objective.loss);
  objective.from_logits = loss.from_logits;
  objective.label_smoothing = static_cast<float>(loss.label_smoothing);
  objective.delta = static_cast<float>(loss.delta);
  objective.sum = loss.reduction == Reduction::kSum;
  for (const MetricConfig& config : metrics) {
    NamedMetric metric = make_metric(config, objective.loss, output);
    const bool classes = takes_classes(metric);
    require(classes == sparse(objective.loss),
            "metric \"{}\" takes {}, but loss \"{}\" takes {}; choose a metric or a loss that takes the same",
            config.metric, classes ? "class numbers" : "labels of the output's shape", loss.name,
            classes ? "labels of the output's shape" : "class numbers");
    objective.metrics.push_back(std::move(metric));
  }
  make_unique_names(objective.metrics);
  return objective;
}

void check_labels(const Objective& objective, const Shape& output, const Shape& label_shape,
                  DType label_dtype, std::string_view data) {
  const Shape wanted = label_shape_of(objective.loss, output);
  const DType dtype = sparse(objective.loss) ? DType::kI32 : DType::kF32;
  // A class number may have an axis of its own.
  const bool one_class = sparse(objective.loss) && wanted.rank() == 0 && label_shape == Shape{1};
  if (label_dtype == dtype && (label_shape == wanted || one_class)) return;
  std::string_view hint = "";
  if (sparse(objective.loss) && label_shape == output) {
    hint = "; categorical_crossentropy takes such labels";
  } else if (!sparse(objective.loss) && label_dtype == DType::kI32 && last_extent(output) > 1) {
    hint = "; sparse_categorical_crossentropy takes class numbers";
  }
  raise<InvalidArgument>(
      "{}: loss \"{}\" wants {} labels of shape {} per sample, the data has {} of shape {}{}", data,
      loss_name(objective.loss), dtype_name(dtype), wanted.text(), dtype_name(label_dtype),
      label_shape.text(), hint);
}

}  // namespace rondo
