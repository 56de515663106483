#include "models/keras/training_config.h"

#include <cctype>
#include <variant>

#include "models/layers/config_parts.h"
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

void set_clipping(Config& config, const Clipping& clip) {
  if (clip.clipvalue > 0.0) config.set("clipvalue", clip.clipvalue);
  if (clip.clipnorm > 0.0) config.set("clipnorm", clip.clipnorm);
  if (clip.global_clipnorm > 0.0) config.set("global_clipnorm", clip.global_clipnorm);
}

// Calls each(key, setting) for the settings that an optimizer shares with Keras' configuration.
template <class T, class Each>
void each_setting(T& settings, const Each& each) {
  if constexpr (requires { settings.schedule_decay; }) {
    each("decay", settings.schedule_decay);  // the place that tf.keras gives Nadam's
  } else {
    each("decay", settings.decay);
  }
  if constexpr (requires { settings.momentum; }) each("momentum", settings.momentum);
  if constexpr (requires { settings.nesterov; }) each("nesterov", settings.nesterov);
  if constexpr (requires { settings.rho; }) each("rho", settings.rho);
  if constexpr (requires { settings.beta_1; }) each("beta_1", settings.beta_1);
  if constexpr (requires { settings.beta_2; }) each("beta_2", settings.beta_2);
  if constexpr (requires { settings.epsilon; }) each("epsilon", settings.epsilon);
  if constexpr (requires { settings.centered; }) each("centered", settings.centered);
  if constexpr (requires { settings.amsgrad; }) each("amsgrad", settings.amsgrad);
  if constexpr (requires { settings.weight_decay; }) each("weight_decay", settings.weight_decay);
  if constexpr (requires { settings.trust_coefficient; }) {
    each("trust_coefficient", settings.trust_coefficient);
  }
  if constexpr (requires { settings.initial_accumulator_value; }) {
    each("initial_accumulator_value", settings.initial_accumulator_value);
  }
}

ConfigValue optimizer_config(const OptimizerConfig& optimizer) {
  return std::visit(
      [&](const auto& settings) -> ConfigValue {
        const std::string name(optimizer_class(optimizer));
        Config config = {{"name", name}, {"learning_rate", settings.learning_rate}};
        each_setting(settings, [&](const char* key, const auto& value) { config.set(key, value); });
        set_clipping(config, settings.clip);
        return Config{{"class_name", name}, {"config", std::move(config)}};
      },
      optimizer);
}

double learning_rate_of(const ConfigView& config) {
  const char* key = config.find("learning_rate") ? "learning_rate" : "lr";
  const ConfigView rate = config[key];
  if (rate.is_config()) raise<FileError>("{}: schedules of the learning rate are not read", rate.where());
  return rate.number();
}

void require_zero(const ConfigView& config, const char* key) {
  if (const auto found = config.find(key)) {
    if (const bool* flag = found->value().as<bool>(); flag != nullptr && !*flag) return;
    if (found->value().as<bool>() != nullptr || found->number() != 0.0) found->fail("0: it is not supported");
  }
}

void read_setting(const ConfigView& config, const char* key, double& value) {
  value = config.number(key, value);
}
void read_setting(const ConfigView& config, const char* key, bool& value) {
  value = config.boolean(key, value);
}

double clip_from(const ConfigView& config, const char* key) {
  const auto found = config.find(key);
  return found && !found->is_null() ? found->number() : 0.0;
}

OptimizerConfig optimizer_named(const std::string& name, const ConfigView& view) {
  try {
    return optimizer_by_name(name);
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", view.where(), error.what());
  }
}

OptimizerConfig optimizer_from(const ConfigView& view) {
  if (view.is_string()) return optimizer_named(view.string(), view);
  const ConfigObject object = read_object(view);
  const ConfigView& config = object.config;
  OptimizerConfig optimizer = optimizer_named(object.class_name, view);
  require_zero(config, "use_ema");
  const bool rewritten = config.find("use_ema").has_value();  // Keras 2.11 and later
  std::visit(
      [&](auto& settings) {
        if constexpr (!requires { settings.weight_decay; }) require_zero(config, "weight_decay");
        if constexpr (!requires { settings.amsgrad; }) require_zero(config, "amsgrad");
        settings.learning_rate = learning_rate_of(config);
        each_setting(settings, [&](const char* key, auto& value) { read_setting(config, key, value); });
        if constexpr (requires { settings.schedule_decay; }) {
          settings.schedule_decay = config.number("schedule_decay", settings.schedule_decay);  // Keras 2.3
        }
        if (rewritten) {
          if constexpr (requires { settings.schedule_decay; }) settings.schedule_decay = 1.0;
          if constexpr (requires { settings.epsilon_inside; }) settings.epsilon_inside = true;
        }
        settings.clip = {.global_clipnorm = clip_from(config, "global_clipnorm"),
                         .clipvalue = clip_from(config, "clipvalue"),
                         .clipnorm = clip_from(config, "clipnorm")};
      },
      optimizer);
  return optimizer;
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

ConfigValue training_config(const TrainingConfig& training) {
  ConfigList metrics;
  for (const MetricConfig& metric : training.metrics) metrics.emplace_back(metric.metric);
  return Config{{"loss", loss_value(training.loss)},
                {"metrics", std::move(metrics)},
                {"weighted_metrics", nullptr},
                {"loss_weights", nullptr},
                {"optimizer_config", optimizer_config(training.optimizer)}};
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
