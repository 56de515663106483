#include "runtime/optim/optimizer_config.h"

#include <cmath>

#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Entry {
  std::string_view name;
  OptimizerConfig config;
};

const Entry kOptimizers[] = {{"sgd", SGD{}}, {"rmsprop", RMSprop{}}, {"adam", Adam{}}};

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

void check(const SGD& sgd) {
  check_fraction("sgd", "momentum", sgd.momentum);
}
void check(const RMSprop& rmsprop) {
  check_fraction("rmsprop", "rho", rmsprop.rho);
  check_epsilon("rmsprop", rmsprop.epsilon);
}
void check(const Adam& adam) {
  check_fraction("adam", "beta_1", adam.beta_1);
  check_fraction("adam", "beta_2", adam.beta_2);
  check_epsilon("adam", adam.epsilon);
}

std::string settings(const SGD& sgd) {
  return fmt::format("momentum={} nesterov={}", sgd.momentum, sgd.nesterov);
}
std::string settings(const RMSprop& rmsprop) {
  return fmt::format("rho={} epsilon={}", rmsprop.rho, rmsprop.epsilon);
}
std::string settings(const Adam& adam) {
  return fmt::format("beta_1={} beta_2={} epsilon={}", adam.beta_1, adam.beta_2, adam.epsilon);
}

SgdUpdate rule(const SGD& sgd) {
  return {.momentum = static_cast<float>(sgd.momentum), .nesterov = sgd.nesterov};
}
RmsPropUpdate rule(const RMSprop& rmsprop) {
  return {.rho = static_cast<float>(rmsprop.rho), .epsilon = static_cast<float>(rmsprop.epsilon)};
}
AdamUpdate rule(const Adam& adam) {
  return {.beta_1 = static_cast<float>(adam.beta_1),
          .beta_2 = static_cast<float>(adam.beta_2),
          .epsilon = static_cast<float>(adam.epsilon)};
}

}  // namespace

OptimizerConfig optimizer_by_name(std::string_view name) {
  std::string names;
  for (const Entry& entry : kOptimizers) {
    if (entry.name == name) return entry.config;
    names += names.empty() ? "" : ", ";
    names += entry.name;
  }
  raise<InvalidArgument>("unknown optimizer \"{}\"; choose one of {}", name, names);
}

std::string_view optimizer_name(const OptimizerConfig& config) {
  return kOptimizers[config.index()].name;
}

std::string describe(const OptimizerConfig& config) {
  const Clipping& clip = clipping_of(config);
  return std::visit(
      [&](const auto& optimizer) {
        return fmt::format("{} learning_rate={} {} schedule={} global_clipnorm={} clipvalue={}",
                           optimizer_name(config), optimizer.learning_rate, settings(optimizer),
                           schedule_text(optimizer.schedule), clip.global_clipnorm, clip.clipvalue);
      },
      config);
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
  check_clip("global_clipnorm", clipping_of(config).global_clipnorm);
  check_clip("clipvalue", clipping_of(config).clipvalue);
}

UpdateSpec update_spec(const OptimizerConfig& config) {
  UpdateSpec spec;
  std::visit([&](const auto& optimizer) { spec.rule = rule(optimizer); }, config);
  spec.clip_value = static_cast<float>(clipping_of(config).clipvalue);
  return spec;
}

}  // namespace rondo
