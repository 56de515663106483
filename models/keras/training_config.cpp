#include "models/keras/training_config.h"

#include <cctype>

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
    return config.string("name", "") == "accuracy" ? "accuracy" : config["fn"].string();
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

// The only entry of lists in lists: Keras nests per output.
ConfigView unwrapped(ConfigView view) {
  while (view.is_list()) {
    const auto entries = view.list();
    if (entries.size() != 1) view.fail("one entry: models with one output can be compiled");
    view = entries[0];
  }
  return view;
}

void add_metrics(const ConfigView& view, std::vector<MetricConfig>& metrics, int depth = 0) {
  if (!view.is_list()) {
    metrics.emplace_back(name_from(view));
    return;
  }
  if (depth > 2) view.fail("metrics of one output");
  for (const ConfigView& entry : view.list()) add_metrics(entry, metrics, depth + 1);
}

}  // namespace

ConfigValue training_config(const TrainingConfig& training, KerasDialect dialect) {
  ConfigList metrics;
  for (const MetricConfig& metric : training.metrics) metrics.emplace_back(metric.metric);
  return Config{{"loss", loss_value(training.loss)},
                {"metrics", std::move(metrics)},
                {"weighted_metrics", nullptr},
                {"loss_weights", nullptr},
                {"optimizer_config", optimizer_config(training.optimizer, dialect == KerasDialect::kKeras3
                                                                              ? OptimizerForm::kKeras3H5
                                                                              : OptimizerForm::kLegacy)}};
}

ConfigValue compile_config(const TrainingConfig& training) {
  ConfigList metrics;
  for (const MetricConfig& metric : training.metrics) metrics.emplace_back(metric.metric);
  return Config{{"optimizer", optimizer_config(training.optimizer, OptimizerForm::kArchive)},
                {"loss", archive_loss(training.loss)},
                {"loss_weights", nullptr},
                {"metrics", std::move(metrics)},
                {"weighted_metrics", nullptr},
                {"run_eagerly", false},
                {"steps_per_execution", 1},
                {"jit_compile", false}};
}

TrainingConfig training_from(const ConfigView& view) {
  const auto optimizer = view.find("optimizer_config") ? view["optimizer_config"] : view["optimizer"];
  TrainingConfig training;
  training.optimizer = optimizer_from(optimizer);
  training.loss = loss_from(unwrapped(view["loss"]));
  if (const auto metrics = view.find("metrics")) add_metrics(*metrics, training.metrics);
  if (const auto weighted = view.find("weighted_metrics")) {
    if (!weighted->is_list() || !weighted->list().empty()) weighted->fail("no weighted metrics");
  }
  view.require_unset("loss_weights");
  return training;
}

}  // namespace rondo::keras
