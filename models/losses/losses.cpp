#include "models/losses/losses.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/source.h"

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
void make_unique(std::string& name, std::set<std::string>& taken) {
  const std::string given = name;
  for (int again = 1; !taken.insert(name).second; ++again) name = fmt::format("{}_{}", given, again);
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

namespace {

void add_metrics(Objective& objective, const std::vector<MetricConfig>& metrics, bool weighted,
                 const Shape& output) {
  for (const MetricConfig& config : metrics) {
    NamedMetric metric = make_metric(config, objective.loss, output);
    const bool classes = takes_classes(metric);
    require(classes == sparse(objective.loss),
            "metric \"{}\" takes {}, but {} takes {}; choose a metric or a loss that takes the same",
            config.metric, classes ? "class numbers" : "labels of the output's shape",
            objective.has_loss ? fmt::format("loss \"{}\"", loss_name(objective.loss)) : "another metric",
            classes ? "labels of the output's shape" : "class numbers");
    metric.weighted = weighted;
    objective.metrics.push_back(std::move(metric));
  }
}

Objective loss_objective(const LossConfig& loss) {
  Objective objective{.loss = loss_by_name(loss.name)};
  check_numbers(loss, objective.loss);
  objective.from_logits = loss.from_logits;
  objective.label_smoothing = static_cast<float>(loss.label_smoothing);
  objective.delta = static_cast<float>(loss.delta);
  objective.sum = loss.reduction == Reduction::kSum;
  return objective;
}

// A loss that takes such labels as an output's metrics do, where it has none of its own.
Loss loss_of_metrics(const std::vector<MetricConfig>& metrics, const Shape& output) {
  for (const MetricConfig& config : metrics) {
    if (takes_classes(metric_by_name(config.metric, Loss::kMeanSquaredError, output))) {
      return Loss::kSparseCategoricalCrossentropy;
    }
  }
  return Loss::kMeanSquaredError;
}

void name_metrics(Objectives& objectives, const std::vector<std::string>& output_names) {
  std::set<std::string> taken(objectives.loss_names.begin(), objectives.loss_names.end());
  taken.insert("loss");
  for (Objective& objective : objectives.outputs) {
    const std::string prefix = output_names.size() > 1 ? output_names[objective.output] + "_" : "";
    for (NamedMetric& metric : objective.metrics) {
      const bool again = metric.weighted && taken.contains(prefix + metric.name);
      metric.name = prefix + (again ? "weighted_" : "") + metric.name;
      make_unique(metric.name, taken);
    }
  }
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", name);
  return out;
}

}  // namespace

Objective make_objective(const LossConfig& loss, const std::vector<MetricConfig>& metrics,
                         const Shape& output) {
  Objective objective = loss_objective(loss);
  add_metrics(objective, metrics, false, output);
  std::set<std::string> taken{"loss"};
  for (NamedMetric& metric : objective.metrics) make_unique(metric.name, taken);
  return objective;
}

template <class T>
std::vector<std::optional<T>> of_outputs(const PerOutput<T>& said, const std::vector<std::string>& names,
                                         std::string_view what) {
  if (const T* all = std::get_if<T>(&said)) return std::vector<std::optional<T>>(names.size(), *all);
  std::vector<std::optional<T>> each(names.size());
  if (const auto* in_order = std::get_if<std::vector<T>>(&said)) {
    require(in_order->size() == names.size(), "{} is a list for {} outputs; the model has {}: {}", what,
            in_order->size(), names.size(), list_of(names));
    std::copy(in_order->begin(), in_order->end(), each.begin());
    return each;
  }
  for (const auto& [name, value] : std::get<std::map<std::string, T>>(said)) {
    const auto found = std::find(names.begin(), names.end(), name);
    require(found != names.end(), "{} is given for an output \"{}\"; the model's outputs are {}", what, name,
            list_of(names));
    each[static_cast<size_t>(found - names.begin())] = value;
  }
  return each;
}

template std::vector<std::optional<LossConfig>> of_outputs(const PerOutput<LossConfig>&,
                                                           const std::vector<std::string>&, std::string_view);
template std::vector<std::optional<OutputMetrics::List>> of_outputs(const PerOutput<OutputMetrics::List>&,
                                                                    const std::vector<std::string>&,
                                                                    std::string_view);
template std::vector<std::optional<double>> of_outputs(const PerOutput<double>&,
                                                       const std::vector<std::string>&, std::string_view);
template std::vector<std::optional<SampleWeights::List>> of_outputs(const PerOutput<SampleWeights::List>&,
                                                                    const std::vector<std::string>&,
                                                                    std::string_view);

Objectives make_objectives(const ObjectiveRequest& request, const std::vector<Shape>& outputs,
                           const std::vector<std::string>& output_names) {
  const auto losses = of_outputs(request.loss.value(), output_names, "loss");
  const auto weights = of_outputs(request.loss_weights.value(), output_names, "loss_weights");
  const auto metrics = of_outputs(request.metrics.value(), output_names, "metrics");
  const auto weighted = of_outputs(request.weighted_metrics.value(), output_names, "weighted_metrics");
  Objectives all{std::vector<Objective>()};
  const bool several = outputs.size() > 1;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool has_loss = losses[i] && !losses[i]->name.empty();
    std::vector<MetricConfig> measured = metrics[i].value_or(OutputMetrics::List{});
    const std::vector<MetricConfig> by_weight = weighted[i].value_or(OutputMetrics::List{});
    if (!has_loss && measured.empty() && by_weight.empty()) continue;
    try {
      Objective objective = has_loss ? loss_objective(*losses[i]) : Objective{};
      objective.output = i;
      objective.has_loss = has_loss;
      objective.weight = weights[i].value_or(1.0);
      require(std::isfinite(objective.weight), "loss_weights has {}; weights must be finite",
              objective.weight);
      if (!has_loss) {
        std::vector<MetricConfig> both = measured;
        both.insert(both.end(), by_weight.begin(), by_weight.end());
        objective.loss = loss_of_metrics(both, outputs[i]);
      }
      add_metrics(objective, measured, false, outputs[i]);
      add_metrics(objective, by_weight, true, outputs[i]);
      all.outputs.push_back(std::move(objective));
    } catch (const InvalidArgument& error) {
      if (!several) throw;
      raise<InvalidArgument>("output \"{}\": {}", output_names[i], error.what());
    }
    if (has_loss && several) all.loss_names.push_back(output_names[i] + "_loss");
  }
  const Objective* first = nullptr;
  for (const Objective& each : all.outputs) {
    if (!each.has_loss) continue;
    if (first == nullptr) first = &each;
    require(each.sum == first->sum,
            "the losses of outputs \"{}\" and \"{}\" have different reductions; they "
            "must be alike",
            output_names[first->output], output_names[each.output]);
  }
  require(first != nullptr, "no loss is given; choose one for {}",
          several ? "at least one of the outputs " + list_of(output_names) : "the model, as \"mse\"");
  name_metrics(all, output_names);
  return all;
}

void check_labels(const Objective& objective, const Shape& output, const SampleField& label,
                  std::string_view data) {
  const Shape wanted = label_shape_of(objective.loss, output);
  const DType dtype = sparse(objective.loss) ? DType::kI32 : DType::kF32;
  // A class number may have an axis of its own.
  const bool one_class = sparse(objective.loss) && wanted.rank() == 0 && label.shape == Shape{1};
  if (label.dtype != dtype || (label.shape != wanted && !one_class)) {
    std::string_view hint = "";
    if (sparse(objective.loss) && label.shape == output) {
      hint = "; categorical_crossentropy takes such labels";
    } else if (!sparse(objective.loss) && label.dtype == DType::kI32 && last_extent(output) > 1) {
      hint = "; sparse_categorical_crossentropy takes class numbers";
    }
    raise<InvalidArgument>("{}: {} {} labels of shape {} per sample, the data has {} of shape {}{}", data,
                           objective.has_loss ? fmt::format("loss \"{}\" wants", loss_name(objective.loss))
                                              : std::string("the metrics want"),
                           dtype_name(dtype), wanted.text(), dtype_name(label.dtype), label.shape.text(),
                           hint);
  }
  if (!label.weights) return;
  const auto positions = output.extents().first(static_cast<size_t>(std::max(output.rank() - 1, 0)));
  const auto given = label.weights->extents();
  require(
      given.size() <= positions.size() && std::equal(given.begin(), given.end(), positions.begin()),
      "{}: a sample has losses of shape {}, the data has weights of shape {} for them; they must be () or "
      "leading extents of these",
      data, Shape(positions).text(), label.weights->text());
}

}  // namespace rondo
