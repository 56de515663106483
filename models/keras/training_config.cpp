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
  if (clip.global_clipnorm > 0.0) config.set("global_clipnorm", clip.global_clipnorm);
}

ConfigValue optimizer_config(const OptimizerConfig& optimizer) {
  return std::visit(
      [](const auto& settings) -> ConfigValue {
        using T = std::decay_t<decltype(settings)>;
        Config config;
        std::string name;
        if constexpr (std::is_same_v<T, SGD>) {
          name = "SGD";
          config = {{"name", name}, {"learning_rate", settings.learning_rate}, {"decay", 0.0}};
          config.set("momentum", settings.momentum);
          config.set("nesterov", settings.nesterov);
        } else if constexpr (std::is_same_v<T, RMSprop>) {
          name = "RMSprop";
          config = {{"name", name}, {"learning_rate", settings.learning_rate}, {"decay", 0.0}};
          config.set("rho", settings.rho);
          config.set("momentum", 0.0);
          config.set("epsilon", settings.epsilon);
          config.set("centered", false);
        } else {
          static_assert(std::is_same_v<T, Adam>);
          name = "Adam";
          config = {{"name", name}, {"learning_rate", settings.learning_rate}, {"decay", 0.0}};
          config.set("beta_1", settings.beta_1);
          config.set("beta_2", settings.beta_2);
          config.set("epsilon", settings.epsilon);
          config.set("amsgrad", false);
        }
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

OptimizerConfig optimizer_from(const ConfigView& view) {
  const ConfigObject object = read_object(view);
  const ConfigView& config = object.config;
  for (const char* key : {"decay", "weight_decay", "clipnorm", "use_ema", "amsgrad", "centered"}) {
    require_zero(config, key);
  }
  const Clipping clip{.global_clipnorm = config.number("global_clipnorm", 0.0),
                      .clipvalue = config.number("clipvalue", 0.0)};
  if (object.class_name == "SGD") {
    SGD sgd;
    sgd.learning_rate = learning_rate_of(config);
    sgd.momentum = config.number("momentum", 0.0);
    sgd.nesterov = config.boolean("nesterov", false);
    sgd.clip = clip;
    return sgd;
  }
  if (object.class_name == "RMSprop") {
    require_zero(config, "momentum");
    RMSprop rmsprop;
    rmsprop.learning_rate = learning_rate_of(config);
    rmsprop.rho = config.number("rho", 0.9);
    rmsprop.epsilon = config.number("epsilon", 1e-7);
    rmsprop.clip = clip;
    return rmsprop;
  }
  if (object.class_name == "Adam") {
    Adam adam;
    adam.learning_rate = learning_rate_of(config);
    adam.beta_1 = config.number("beta_1", 0.9);
    adam.beta_2 = config.number("beta_2", 0.999);
    adam.epsilon = config.number("epsilon", 1e-7);
    adam.clip = clip;
    return adam;
  }
  raise<FileError>("{}: the optimizer {} is not supported", view.where(), object.class_name);
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
  if (config.boolean("from_logits", false) || config.number("label_smoothing", 0.0) != 0.0) {
    raise<FileError>("{}: losses of logits or with label smoothing are not read", view.where());
  }
  return snake_case(name.string());
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

void add_metrics(const ConfigView& view, std::vector<std::string>& metrics, int depth = 0) {
  if (!view.is_list()) {
    metrics.push_back(name_from(view));
    return;
  }
  if (depth > 2) view.fail("metrics of one output");
  for (const ConfigView& entry : view.list()) add_metrics(entry, metrics, depth + 1);
}

}  // namespace

ConfigValue training_config(const TrainingConfig& training) {
  ConfigList metrics;
  for (const std::string& metric : training.metrics) metrics.emplace_back(metric);
  return Config{{"loss", training.loss},
                {"metrics", std::move(metrics)},
                {"weighted_metrics", nullptr},
                {"loss_weights", nullptr},
                {"optimizer_config", optimizer_config(training.optimizer)}};
}

TrainingConfig training_from(const ConfigView& view) {
  const auto optimizer = view.find("optimizer_config") ? view["optimizer_config"] : view["optimizer"];
  TrainingConfig training;
  training.optimizer =
      optimizer.is_string() ? optimizer_by_name(optimizer.string()) : optimizer_from(optimizer);
  training.loss = name_from(unwrapped(view["loss"]));
  if (const auto metrics = view.find("metrics")) add_metrics(*metrics, training.metrics);
  if (const auto weighted = view.find("weighted_metrics")) {
    if (!weighted->is_list() || !weighted->list().empty()) weighted->fail("no weighted metrics");
  }
  view.require_unset("loss_weights");
  return training;
}

}  // namespace rondo::keras
