#include "models/keras/optimizer_config.h"

#include <type_traits>
#include <variant>

#include "models/layers/config_parts.h"
#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

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

// ---- schedules

ConfigValue schedule_object(const char* class_name, Config config, OptimizerForm form) {
  config.set("name", class_name);
  if (form == OptimizerForm::kLegacy) {
    return Config{{"class_name", class_name}, {"config", std::move(config)}};
  }
  return Config{{"module", "keras.optimizers.schedules"},
                {"class_name", class_name},
                {"config", std::move(config)},
                {"registered_name", nullptr}};
}

ConfigValue inverse_time(double base, int64_t every, double rate, bool staircase, OptimizerForm form) {
  return schedule_object("InverseTimeDecay",
                         {{"initial_learning_rate", base},
                          {"decay_steps", every},
                          {"decay_rate", rate},
                          {"staircase", staircase}},
                         form);
}

ConfigValue exponential(double base, int64_t every, double rate, bool staircase, OptimizerForm form) {
  return schedule_object("ExponentialDecay",
                         {{"initial_learning_rate", base},
                          {"decay_steps", every},
                          {"decay_rate", rate},
                          {"staircase", staircase}},
                         form);
}

ConfigValue learning_rate_value(double base, const Schedule& schedule, OptimizerForm form) {
  if (schedule.warmup_steps > 0) return base;
  return std::visit(
      Overloaded{
          [&](const ConstantSchedule&) -> ConfigValue { return base; },
          [&](const StepSchedule& rule) { return exponential(base, rule.every, rule.factor, true, form); },
          [&](const ExponentialSchedule& rule) {
            return exponential(base, rule.every, rule.rate, rule.staircase, form);
          },
          [&](const InverseTimeSchedule& rule) {
            return inverse_time(base, rule.every, rule.rate, rule.staircase, form);
          },
          [&](const CosineSchedule& rule) -> ConfigValue {
            if (rule.total_steps == 0) return base;
            Config config{
                {"initial_learning_rate", base}, {"decay_steps", rule.total_steps}, {"alpha", rule.alpha}};
            if (rule.warmup_target) {
              config.set("warmup_target", *rule.warmup_target);
              config.set("warmup_steps", rule.warmup_steps);
            }
            return schedule_object("CosineDecay", std::move(config), form);
          },
          [&](const PiecewiseSchedule& rule) {
            ConfigList boundaries(rule.boundaries.begin(), rule.boundaries.end());
            ConfigList values(rule.values.begin(), rule.values.end());
            return schedule_object("PiecewiseConstantDecay",
                                   {{"boundaries", std::move(boundaries)}, {"values", std::move(values)}},
                                   form);
          },
          [&](const PolynomialSchedule& rule) {
            return schedule_object("PolynomialDecay",
                                   {{"initial_learning_rate", base},
                                    {"decay_steps", rule.total_steps},
                                    {"end_learning_rate", rule.end},
                                    {"power", rule.power},
                                    {"cycle", rule.cycle}},
                                   form);
          }},
      schedule.rule);
}

Schedule schedule_from(const ConfigObject& object) {
  const ConfigView& config = object.config;
  Schedule schedule;
  if (object.class_name == "ExponentialDecay") {
    schedule.rule = ExponentialSchedule{.every = config["decay_steps"].integer(),
                                        .rate = config["decay_rate"].number(),
                                        .staircase = config.boolean("staircase", false)};
  } else if (object.class_name == "InverseTimeDecay") {
    schedule.rule = InverseTimeSchedule{.every = config["decay_steps"].integer(),
                                        .rate = config["decay_rate"].number(),
                                        .staircase = config.boolean("staircase", false)};
  } else if (object.class_name == "PolynomialDecay") {
    schedule.rule = PolynomialSchedule{.total_steps = config["decay_steps"].integer(),
                                       .end = config.number("end_learning_rate", 1e-4),
                                       .power = config.number("power", 1.0),
                                       .cycle = config.boolean("cycle", false)};
  } else if (object.class_name == "CosineDecay") {
    CosineSchedule rule{.total_steps = config["decay_steps"].integer(), .alpha = config.number("alpha", 0.0)};
    if (const auto target = config.find("warmup_target")) {
      rule.warmup_target = target->number();
      rule.warmup_steps = config.integer("warmup_steps", 0);
    }
    schedule.rule = rule;
  } else if (object.class_name == "PiecewiseConstantDecay") {
    PiecewiseSchedule rule;
    for (const ConfigView& each : config["boundaries"].list()) rule.boundaries.push_back(each.integer());
    for (const ConfigView& each : config["values"].list()) rule.values.push_back(each.number());
    schedule.rule = std::move(rule);
  } else {
    config.fail("ExponentialDecay, InverseTimeDecay, PolynomialDecay, CosineDecay or PiecewiseConstantDecay");
  }
  return schedule;
}

// The base rate, and the schedule where it is an object.
double read_learning_rate(const ConfigView& config, Schedule& schedule) {
  const ConfigView rate = config[config.find("learning_rate") ? "learning_rate" : "lr"];
  if (!rate.is_config()) return rate.number();
  const ConfigObject object = read_object(rate);
  schedule = schedule_from(object);
  try {
    check_schedule(schedule);
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", rate.where(), error.what());
  }
  if (const auto* rule = std::get_if<PiecewiseSchedule>(&schedule.rule)) return rule->values.front();
  return object.config["initial_learning_rate"].number();
}

// ---- optimizers

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

bool is_of_keras(const OptimizerConfig& optimizer) {
  return !std::holds_alternative<LARS>(optimizer) && !std::holds_alternative<LAMB>(optimizer);
}

// Whether the rule is that of Keras from 2.11 on, which use_ema tells us when we read it.
template <class T>
bool is_rewritten(const T& settings) {
  if constexpr (requires { settings.schedule_decay; }) return settings.schedule_decay == 1.0;
  if constexpr (requires { settings.epsilon_inside; }) return settings.epsilon_inside;
  return std::is_same_v<T, AdamW>;
}

template <class T>
ConfigValue archive_learning_rate(const T& settings) {
  constexpr OptimizerForm kForm = OptimizerForm::kArchive;
  if constexpr (requires { settings.decay; }) {
    const bool constant = std::holds_alternative<ConstantSchedule>(settings.schedule.rule);
    if (settings.decay > 0.0 && constant) {
      return inverse_time(settings.learning_rate, 1, settings.decay, false, kForm);
    }
  }
  return learning_rate_value(settings.learning_rate, settings.schedule, kForm);
}

}  // namespace

bool has_new_form(const OptimizerConfig& optimizer) {
  return std::visit([](const auto& settings) { return is_rewritten(settings); }, optimizer);
}

ConfigValue optimizer_config(const OptimizerConfig& optimizer, OptimizerForm form) {
  const std::string name(optimizer_class(optimizer));
  const bool before = form == OptimizerForm::kLegacy && !has_new_form(optimizer);
  Config config = {{"name", name}};
  std::visit(
      [&](const auto& settings) {
        config.set("learning_rate", before
                                        ? learning_rate_value(settings.learning_rate, settings.schedule, form)
                                        : archive_learning_rate(settings));
        each_setting(settings, [&](const std::string_view key, const auto& value) {
          if (before || key != "decay") config.set(key, value);  // the others refuse it
        });
        set_clipping(config, settings.clip);
        if (is_rewritten(settings)) config.set("use_ema", false);
      },
      optimizer);
  if (form == OptimizerForm::kLegacy) {
    return Config{{"class_name", before ? name : "Custom>" + name}, {"config", std::move(config)}};
  }
  if (form == OptimizerForm::kKeras3H5) return Config{{"class_name", name}, {"config", std::move(config)}};
  const bool known = is_of_keras(optimizer);
  return Config{{"module", known ? ConfigValue("keras.optimizers") : ConfigValue()},
                {"class_name", name},
                {"config", std::move(config)},
                {"registered_name", known ? ConfigValue() : ConfigValue(name)}};
}

OptimizerConfig optimizer_from(const ConfigView& view) {
  if (view.is_string()) return optimizer_named(view.string(), view);
  const ConfigObject object = read_object(view);
  const ConfigView& config = object.config;
  // tf.keras from 2.11 on tells its new optimizers from the old ones by "Custom>Adam" in .h5 files.
  const std::string& name = object.class_name;
  OptimizerConfig optimizer = optimizer_named(name.substr(name.find('>') + 1), view);
  require_zero(config, "use_ema");
  const bool rewritten = config.find("use_ema").has_value();  // Keras 2.11 and later
  std::visit(
      [&](auto& settings) {
        if constexpr (!requires { settings.weight_decay; }) require_zero(config, "weight_decay");
        if constexpr (!requires { settings.amsgrad; }) require_zero(config, "amsgrad");
        settings.learning_rate = read_learning_rate(config, settings.schedule);
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

}  // namespace rondo::keras
