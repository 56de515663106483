#include "models/keras/training_config.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <variant>

#include "models/keras/optimizer_config.h"
#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

// "CategoricalCrossentropy" to "categorical_crossentropy".
std::string snake_case(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isupper(letter) != 0 && !out.empty()) out += '_';
    out += static_cast<char>(std::tolower(letter));
  }
  return out;
}

// A name, a function or an object of Keras' losses and metrics.
std::string name_from(const ConfigView& view) {
  if (view.is_string()) return view.string();
  const ConfigView name = view["class_name"];
  const ConfigView config = view["config"];
  if (name.string() == "function") return config.string();
  if (name.string() == "MeanMetricWrapper") {
    const std::string given = config.string("name", ""), function = config["fn"].string();
    // Of several outputs, "main_accuracy".
    const bool is_accuracy =
        given == "accuracy" || (given.ends_with("_accuracy") && function.ends_with("_accuracy") &&
                                given != function && !given.ends_with("_" + function));
    return is_accuracy ? "accuracy" : function;
  }
  return snake_case(name.string());
}

LossConfig loss_from(const ConfigView& view) {
  LossConfig loss(name_from(view));
  if (view.is_string()) return loss;
  const ConfigView config = view["config"];
  if (!config.is_config()) return loss;
  loss.from_logits = config.boolean("from_logits", false);
  loss.label_smoothing = config.number("label_smoothing", 0.0);
  loss.delta = config.number("delta", 1.0);
  if (config.string("reduction", "") == "sum") loss.reduction = Reduction::kSum;
  return loss;
}

// A plain name, or an object of Keras where there are settings.
ConfigValue loss_value(const LossConfig& loss) {
  const bool plain = !loss.from_logits && loss.label_smoothing == 0.0 && loss.delta == 1.0 &&
                     loss.reduction == Reduction::kSumOverBatchSize;
  if (plain) return loss.name;
  std::string class_name;
  for (size_t i = 0; i < loss.name.size(); ++i) {
    if (loss.name[i] == '_') continue;
    const auto letter = static_cast<unsigned char>(loss.name[i]);
    const bool first = i == 0 || loss.name[i - 1] == '_';
    class_name += static_cast<char>(first ? std::toupper(letter) : letter);
  }
  Config config = {{"name", loss.name}, {"reduction", loss.reduction == Reduction::kSum ? "sum" : "auto"}};
  if (loss.from_logits) config.set("from_logits", true);
  if (loss.label_smoothing != 0.0) config.set("label_smoothing", loss.label_smoothing);
  if (loss.delta != 1.0) config.set("delta", loss.delta);
  return Config{{"class_name", class_name}, {"config", std::move(config)}};
}

// The same with the module by which Keras finds the class, and no name for the default reduction.
ConfigValue archive_loss(const LossConfig& loss) {
  const ConfigValue value = loss_value(loss);
  const Config* object = value.as<Config>();
  if (object == nullptr) return value;
  Config config = *object->find("config")->as<Config>();
  if (loss.reduction == Reduction::kSumOverBatchSize) config.set("reduction", "sum_over_batch_size");
  return Config{{"module", "keras.losses"},
                {"class_name", *object->find("class_name")},
                {"config", std::move(config)},
                {"registered_name", nullptr}};
}

// Keras' objects have a class and its configuration; what else has keys is said by name of the output.
bool is_by_name(const ConfigView& view) {
  return view.is_config() && !view.find("class_name");
}

// Calls each(name, entry).
template <class Each>
void each_entry(const ConfigView& by_name, const Each& each) {
  for (const auto& [name, value] : by_name.value().as<Config>()->entries()) each(name, by_name[name.c_str()]);
}

OutputLosses losses_from(ConfigView view) {
  const auto loss = [](const ConfigView& entry) { return entry.is_null() ? LossConfig{} : loss_from(entry); };
  if (is_by_name(view)) {
    std::map<std::string, LossConfig> by_name;
    each_entry(view, [&](const std::string& name, const ConfigView& entry) { by_name[name] = loss(entry); });
    return by_name;
  }
  if (!view.is_list()) return loss(view);
  std::vector<LossConfig> in_order;
  for (const ConfigView& entry : view.list()) {
    // Keras nests once more where the output is a list of one.
    in_order.push_back(loss(entry.is_list() && entry.list().size() == 1 ? entry.list()[0] : entry));
  }
  if (in_order.size() == 1) return in_order.front();
  return in_order;
}

// A list of metrics, lists in lists flattened.
void add_metrics(const ConfigView& view, std::vector<MetricConfig>& metrics, int depth = 0) {
  if (view.is_null()) return;
  if (!view.is_list()) {
    metrics.emplace_back(name_from(view));
    return;
  }
  if (depth > 2) view.fail("metrics of one output");
  for (const ConfigView& entry : view.list()) add_metrics(entry, metrics, depth + 1);
}

OutputMetrics metrics_from(const ConfigView& view) {
  const auto list = [](const ConfigView& entry) {
    std::vector<MetricConfig> metrics;
    add_metrics(entry, metrics);
    return metrics;
  };
  if (is_by_name(view)) {
    std::map<std::string, OutputMetrics::List> by_name;
    each_entry(view, [&](const std::string& name, const ConfigView& entry) { by_name[name] = list(entry); });
    return by_name;
  }
  const auto is_nested = [](const ConfigView& entry) { return entry.is_list(); };
  if (!view.is_list() || view.list().size() < 2) return list(view);
  const auto entries = view.list();
  if (std::none_of(entries.begin(), entries.end(), is_nested)) return list(view);
  std::vector<OutputMetrics::List> in_order;
  for (const ConfigView& entry : entries) in_order.push_back(list(entry));
  return in_order;
}

LossWeights loss_weights_from(const ConfigView& view) {
  if (view.is_null()) return {};
  if (view.is_config()) {
    std::map<std::string, double> by_name;
    each_entry(view,
               [&](const std::string& name, const ConfigView& entry) { by_name[name] = entry.number(); });
    return by_name;
  }
  std::vector<double> in_order;
  for (const ConfigView& entry : view.list()) in_order.push_back(entry.is_null() ? 1.0 : entry.number());
  return in_order;
}

// As it was given: one, a list, or by name; T is made a value by each(value).
template <class T, class Each>
ConfigValue value_of(const PerOutput<T>& said, const Each& each) {
  if (const T* all = std::get_if<T>(&said)) return each(*all);
  if (const auto* in_order = std::get_if<std::vector<T>>(&said)) {
    ConfigList list;
    for (const T& entry : *in_order) list.push_back(each(entry));
    return list;
  }
  Config by_name;
  for (const auto& [name, entry] : std::get<std::map<std::string, T>>(said)) by_name.set(name, each(entry));
  return by_name;
}

ConfigValue metrics_value(const OutputMetrics& metrics) {
  return value_of(metrics.value(), [](const OutputMetrics::List& list) -> ConfigValue {
    ConfigList names;
    for (const MetricConfig& metric : list) names.emplace_back(metric.metric);
    return names;
  });
}

// A plain name or Keras' object; nothing for an output without a loss.
template <class Value>
ConfigValue losses_value(const OutputLosses& losses, const Value& value) {
  return value_of(losses.value(), [&](const LossConfig& each) -> ConfigValue {
    return each.name.empty() ? ConfigValue(nullptr) : value(each);
  });
}

ConfigValue weighted_metrics_value(const OutputMetrics& metrics) {
  const auto* all = std::get_if<OutputMetrics::List>(&metrics.value());
  return all != nullptr && all->empty() ? ConfigValue(nullptr) : metrics_value(metrics);
}

ConfigValue loss_weights_value(const LossWeights& weights) {
  if (std::holds_alternative<double>(weights.value())) return nullptr;  // 1 for all
  return value_of(weights.value(), [](double weight) -> ConfigValue { return weight; });
}

}  // namespace

ConfigValue training_config(const TrainingConfig& training, KerasDialect dialect) {
  return Config{{"loss", losses_value(training.loss, loss_value)},
                {"metrics", metrics_value(training.metrics)},
                {"weighted_metrics", weighted_metrics_value(training.weighted_metrics)},
                {"loss_weights", loss_weights_value(training.loss_weights)},
                {"optimizer_config", optimizer_config(training.optimizer, dialect == KerasDialect::kKeras3
                                                                              ? OptimizerForm::kKeras3H5
                                                                              : OptimizerForm::kLegacy)}};
}

ConfigValue compile_config(const TrainingConfig& training) {
  return Config{{"optimizer", optimizer_config(training.optimizer, OptimizerForm::kArchive)},
                {"loss", losses_value(training.loss, archive_loss)},
                {"loss_weights", loss_weights_value(training.loss_weights)},
                {"metrics", metrics_value(training.metrics)},
                {"weighted_metrics", weighted_metrics_value(training.weighted_metrics)},
                {"run_eagerly", false},
                {"steps_per_execution", 1},
                {"jit_compile", false}};
}

TrainingConfig training_from(const ConfigView& view) {
  const auto optimizer = view.find("optimizer_config") ? view["optimizer_config"] : view["optimizer"];
  TrainingConfig training;
  training.optimizer = optimizer_from(optimizer);
  training.loss = losses_from(view["loss"]);
  if (const auto metrics = view.find("metrics")) training.metrics = metrics_from(*metrics);
  if (const auto weighted = view.find("weighted_metrics"))
    training.weighted_metrics = metrics_from(*weighted);
  if (const auto weights = view.find("loss_weights")) training.loss_weights = loss_weights_from(*weights);
  return training;
}

}  // namespace rondo::keras
