#include "runtime/optim/optimizer_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Entry {
  std::string_view name;
  std::string_view class_name;  // of Keras
};

// In the order of OptimizerConfig.
constexpr Entry kOptimizers[] = {{"sgd", "SGD"},         {"rmsprop", "RMSprop"},   {"adam", "Adam"},
                                 {"adagrad", "Adagrad"}, {"adadelta", "Adadelta"}, {"adamw", "AdamW"},
                                 {"adamax", "Adamax"},   {"nadam", "Nadam"},       {"lars", "LARS"},
                                 {"lamb", "LAMB"}};
static_assert(std::size(kOptimizers) == std::variant_size_v<OptimizerConfig>);

// The default configuration with this index.
template <size_t kIndex = 0>
OptimizerConfig default_config(size_t index) {
  if constexpr (kIndex + 1 < std::variant_size_v<OptimizerConfig>) {
    if (index != kIndex) return default_config<kIndex + 1>(index);
  }
  return std::variant_alternative_t<kIndex, OptimizerConfig>{};
}

void check_fraction(std::string_view optimizer, std::string_view setting, double value) {
  require(value >= 0.0 && value < 1.0, "{}: {} is {}; it must lie in [0, 1)", optimizer, setting, value);
}

void check_epsilon(std::string_view optimizer, double value) {
  require(value > 0.0 && std::isfinite(value), "{}: epsilon is {}; it must be positive", optimizer, value);
}

void check_clip(std::string_view setting, double value) {
  require(value >= 0.0 && std::isfinite(value), "{} is {}; it must be positive, or 0 for no clipping",
          setting, value);
}

void check_decay(std::string_view optimizer, double value) {
  require(value >= 0.0 && std::isfinite(value), "{}: weight_decay is {}; it must be a number of at least 0",
          optimizer, value);
}

void check_betas(std::string_view name, const auto& optimizer) {
  check_fraction(name, "beta_1", optimizer.beta_1);
  check_fraction(name, "beta_2", optimizer.beta_2);
  check_epsilon(name, optimizer.epsilon);
}

void check(const SGD& sgd) {
  check_fraction("sgd", "momentum", sgd.momentum);
}
void check(const RMSprop& rmsprop) {
  check_fraction("rmsprop", "rho", rmsprop.rho);
  check_fraction("rmsprop", "momentum", rmsprop.momentum);
  check_epsilon("rmsprop", rmsprop.epsilon);
}
void check(const Adagrad& adagrad) {
  require(adagrad.initial_accumulator_value >= 0.0 && std::isfinite(adagrad.initial_accumulator_value),
          "adagrad: initial_accumulator_value is {}; it must be a number of at least 0",
          adagrad.initial_accumulator_value);
  check_epsilon("adagrad", adagrad.epsilon);
}
void check(const Adadelta& adadelta) {
  check_fraction("adadelta", "rho", adadelta.rho);
  check_epsilon("adadelta", adadelta.epsilon);
}
void check(const Adam& adam) {
  check_betas("adam", adam);
}
void check(const AdamW& adamw) {
  check_betas("adamw", adamw);
  check_decay("adamw", adamw.weight_decay);
}
void check(const Adamax& adamax) {
  check_betas("adamax", adamax);
}
void check(const Nadam& nadam) {
  check_betas("nadam", nadam);
  require(nadam.schedule_decay >= 0.0 && std::isfinite(nadam.schedule_decay),
          "nadam: schedule_decay is {}; it must be a number of at least 0", nadam.schedule_decay);
}
void check(const LARS& lars) {
  check_fraction("lars", "momentum", lars.momentum);
  check_decay("lars", lars.weight_decay);
  check_epsilon("lars", lars.epsilon);
  require(lars.trust_coefficient > 0.0 && std::isfinite(lars.trust_coefficient),
          "lars: trust_coefficient is {}; it must be positive", lars.trust_coefficient);
}
void check(const LAMB& lamb) {
  check_betas("lamb", lamb);
  check_decay("lamb", lamb.weight_decay);
}

std::string betas(const auto& optimizer) {
  return fmt::format("beta_1={} beta_2={} epsilon={}", optimizer.beta_1, optimizer.beta_2, optimizer.epsilon);
}
std::string decays(const auto& optimizer) {
  std::string text = fmt::format("weight_decay={}", optimizer.weight_decay);
  for (size_t i = 0; i < optimizer.exclude_from_weight_decay.size(); ++i) {
    text += (i == 0 ? " exclude=" : ",") + optimizer.exclude_from_weight_decay[i];
  }
  return text;
}

std::string settings(const SGD& sgd) {
  return fmt::format("momentum={} nesterov={}", sgd.momentum, sgd.nesterov);
}
std::string settings(const RMSprop& rmsprop) {
  return fmt::format("rho={} momentum={} epsilon={}{} centered={}", rmsprop.rho, rmsprop.momentum,
                     rmsprop.epsilon, rmsprop.epsilon_inside ? " inside" : "", rmsprop.centered);
}
std::string settings(const Adagrad& adagrad) {
  return fmt::format("initial_accumulator_value={} epsilon={}{}", adagrad.initial_accumulator_value,
                     adagrad.epsilon, adagrad.epsilon_inside ? " inside" : "");
}
std::string settings(const Adadelta& adadelta) {
  return fmt::format("rho={} epsilon={}", adadelta.rho, adadelta.epsilon);
}
std::string settings(const Adam& adam) {
  return fmt::format("{} amsgrad={}", betas(adam), adam.amsgrad);
}
std::string settings(const AdamW& adamw) {
  return fmt::format("{} amsgrad={} {}", betas(adamw), adamw.amsgrad, decays(adamw));
}
std::string settings(const Adamax& adamax) {
  return betas(adamax);
}
std::string settings(const Nadam& nadam) {
  return fmt::format("{} schedule_decay={}", betas(nadam), nadam.schedule_decay);
}
std::string settings(const LARS& lars) {
  return fmt::format("momentum={} nesterov={} trust_coefficient={} epsilon={} {}", lars.momentum,
                     lars.nesterov, lars.trust_coefficient, lars.epsilon, decays(lars));
}
std::string settings(const LAMB& lamb) {
  return fmt::format("{} {}", betas(lamb), decays(lamb));
}

float narrow(double value) {
  return static_cast<float>(value);
}

SgdUpdate rule(const SGD& o) {
  return {.momentum = narrow(o.momentum), .nesterov = o.nesterov};
}
RmsPropUpdate rule(const RMSprop& o) {
  return {.rho = narrow(o.rho),
          .epsilon = narrow(o.epsilon),
          .momentum = narrow(o.momentum),
          .centered = o.centered,
          .epsilon_inside = o.epsilon_inside};
}
AdagradUpdate rule(const Adagrad& o) {
  return {.epsilon = narrow(o.epsilon), .epsilon_inside = o.epsilon_inside};
}
AdadeltaUpdate rule(const Adadelta& o) {
  return {.rho = narrow(o.rho), .epsilon = narrow(o.epsilon)};
}
AdamUpdate rule(const Adam& o) {
  return {.beta_1 = narrow(o.beta_1),
          .beta_2 = narrow(o.beta_2),
          .epsilon = narrow(o.epsilon),
          .amsgrad = o.amsgrad};
}
AdamUpdate rule(const AdamW& o) {
  return {.beta_1 = narrow(o.beta_1),
          .beta_2 = narrow(o.beta_2),
          .epsilon = narrow(o.epsilon),
          .amsgrad = o.amsgrad,
          .weight_decay = narrow(o.weight_decay)};
}
AdamaxUpdate rule(const Adamax& o) {
  return {.beta_1 = narrow(o.beta_1), .beta_2 = narrow(o.beta_2), .epsilon = narrow(o.epsilon)};
}
NadamUpdate rule(const Nadam& o) {
  return {.beta_1 = narrow(o.beta_1),
          .beta_2 = narrow(o.beta_2),
          .epsilon = narrow(o.epsilon),
          .schedule_decay = narrow(o.schedule_decay)};
}
LarsUpdate rule(const LARS& o) {
  return {.momentum = narrow(o.momentum),
          .nesterov = o.nesterov,
          .weight_decay = narrow(o.weight_decay),
          .trust = narrow(o.trust_coefficient),
          .epsilon = narrow(o.epsilon)};
}
LambUpdate rule(const LAMB& o) {
  return {.beta_1 = narrow(o.beta_1),
          .beta_2 = narrow(o.beta_2),
          .epsilon = narrow(o.epsilon),
          .weight_decay = narrow(o.weight_decay)};
}

}  // namespace

OptimizerConfig optimizer_by_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string names;
  for (size_t i = 0; i < std::size(kOptimizers); ++i) {
    if (kOptimizers[i].name == lower) return default_config(i);
    names += names.empty() ? "" : ", ";
    names += kOptimizers[i].name;
  }
  raise<InvalidArgument>("unknown optimizer \"{}\"; choose one of {}", name, names);
}

std::string_view optimizer_name(const OptimizerConfig& config) {
  return kOptimizers[config.index()].name;
}

std::string_view optimizer_class(const OptimizerConfig& config) {
  return kOptimizers[config.index()].class_name;
}

std::string describe(const OptimizerConfig& config) {
  const Clipping& clip = clipping_of(config);
  return std::visit(
      [&](const auto& optimizer) {
        return fmt::format(
            "{} learning_rate={} {} decay={} schedule={} clipvalue={} clipnorm={} "
            "global_clipnorm={}",
            optimizer_name(config), optimizer.learning_rate, settings(optimizer), decay_of(config),
            schedule_text(optimizer.schedule), clip.clipvalue, clip.clipnorm, clip.global_clipnorm);
      },
      config);
}

std::vector<std::string> slot_names(const OptimizerConfig& config) {
  if (const auto* sgd = std::get_if<SGD>(&config)) {
    return sgd->momentum != 0.0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  }
  if (const auto* rmsprop = std::get_if<RMSprop>(&config)) {
    std::vector<std::string> names{"rms"};
    if (rmsprop->momentum != 0.0) names.emplace_back("momentum");
    if (rmsprop->centered) names.emplace_back("mg");
    return names;
  }
  if (std::holds_alternative<Adagrad>(config)) return {"accumulator"};
  if (std::holds_alternative<Adadelta>(config)) return {"accum_grad", "accum_var"};
  if (std::holds_alternative<LARS>(config)) return {"momentum"};
  const auto* adam = std::get_if<Adam>(&config);
  const auto* adamw = std::get_if<AdamW>(&config);
  if ((adam != nullptr && adam->amsgrad) || (adamw != nullptr && adamw->amsgrad)) return {"m", "v", "vhat"};
  return {"m", "v"};
}

const Schedule& schedule_of(const OptimizerConfig& config) {
  return std::visit([](const auto& optimizer) -> const Schedule& { return optimizer.schedule; }, config);
}

const Clipping& clipping_of(const OptimizerConfig& config) {
  return std::visit([](const auto& optimizer) -> const Clipping& { return optimizer.clip; }, config);
}

double& learning_rate_of(OptimizerConfig& config) {
  return std::visit([](auto& optimizer) -> double& { return optimizer.learning_rate; }, config);
}

double decay_of(const OptimizerConfig& config) {
  return std::visit(
      [](const auto& optimizer) {
        if constexpr (requires { optimizer.decay; }) {
          return optimizer.decay;
        } else {
          return 0.0;
        }
      },
      config);
}

bool excludes(const OptimizerConfig& config, std::string_view parameter) {
  return std::visit(
      [&](const auto& optimizer) {
        if constexpr (requires { optimizer.exclude_from_weight_decay; }) {
          const auto& parts = optimizer.exclude_from_weight_decay;
          return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
            return parameter.find(part) != std::string_view::npos;
          });
        } else {
          return false;
        }
      },
      config);
}

float initial_slot_value(const OptimizerConfig& config) {
  const auto* adagrad = std::get_if<Adagrad>(&config);
  return adagrad != nullptr ? static_cast<float>(adagrad->initial_accumulator_value) : 0.0f;
}

void check_learning_rate(double rate) {
  require(rate >= 0.0 && std::isfinite(rate), "the learning rate is {}; it must be a number of at least 0",
          rate);
}

void check_config(const OptimizerConfig& config) {
  std::visit(
      [](const auto& optimizer) {
        check_learning_rate(optimizer.learning_rate);
        check(optimizer);
      },
      config);
  check_schedule(schedule_of(config));
  const double decay = decay_of(config);
  require(decay >= 0.0 && std::isfinite(decay), "decay is {}; it must be a number of at least 0", decay);
  const Clipping& clip = clipping_of(config);
  check_clip("clipvalue", clip.clipvalue);
  check_clip("clipnorm", clip.clipnorm);
  check_clip("global_clipnorm", clip.global_clipnorm);
  require(clip.clipnorm == 0.0 || clip.global_clipnorm == 0.0,
          "clipnorm is {} and global_clipnorm is {}; only one of them can be set", clip.clipnorm,
          clip.global_clipnorm);
}

UpdateSpec update_spec(const OptimizerConfig& config) {
  UpdateSpec spec;
  std::visit([&](const auto& optimizer) { spec.rule = rule(optimizer); }, config);
  spec.clip_value = narrow(clipping_of(config).clipvalue);
  spec.clip_norm = narrow(clipping_of(config).clipnorm);
  return spec;
}

}  // namespace rondo
