#include "runtime/optim/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

double apply(const Schedule& schedule, double base, int64_t step) {
  return std::visit(
      Overloaded{
          [&](const ConstantSchedule&) { return base; },
          [&](const StepSchedule& rule) {
            return base * std::pow(rule.factor, static_cast<double>(step / rule.every));
          },
          [&](const CosineSchedule& rule) {
            require(rule.total_steps > 0, "a cosine schedule needs its number of steps; give cosine:TOTAL");
            const double done =
                static_cast<double>(std::min(step, rule.total_steps)) / static_cast<double>(rule.total_steps);
            return base * ((1.0 - rule.alpha) * 0.5 * (1.0 + std::cos(std::numbers::pi * done)) + rule.alpha);
          },
      },
      schedule.rule);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Reads one command-line schedule; every failure quotes the whole text.
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Schedule parse() const {
    const auto clauses = split(text_, ',');
    Schedule schedule = rule(split(clauses[0], ':'));
    if (clauses.size() > 2) fail("too many commas");
    if (clauses.size() == 2) {
      const auto parts = split(clauses[1], ':');
      if (parts[0] != "warmup" || parts.size() != 2) fail("expected warmup:STEPS after the comma");
      schedule.warmup_steps = number<int64_t>(parts[1]);
    }
    try {
      check_schedule(schedule);
    } catch (const InvalidArgument& e) {
      fail(e.what());
    }
    return schedule;
  }

 private:
  Schedule rule(const std::vector<std::string_view>& parts) const {
    Schedule schedule;
    const std::string_view name = parts[0];
    if (name == "constant" && parts.size() == 1) {
      return schedule;
    }
    if (name == "step" && (parts.size() == 2 || parts.size() == 3)) {
      StepSchedule step{.every = number<int64_t>(parts[1])};
      if (parts.size() == 3) step.factor = number<double>(parts[2]);
      schedule.rule = step;
    } else if (name == "cosine" && parts.size() <= 3) {
      CosineSchedule cosine;
      if (parts.size() >= 2) {
        cosine.total_steps = number<int64_t>(parts[1]);
        if (cosine.total_steps == 0) fail("a cosine over 0 steps");
      }
      if (parts.size() == 3) cosine.alpha = number<double>(parts[2]);
      schedule.rule = cosine;
    } else {
      fail("not one of the forms");
    }
    return schedule;
  }

  template <class T>
  T number(std::string_view part) const {
    T value{};
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size())
      fail(fmt::format("\"{}\" is not a number", part));
    return value;
  }

  [[noreturn]] void fail(const std::string& why) const {
    raise<InvalidArgument>(
        "learning-rate schedule \"{}\": {}; the forms are constant, step:EVERY[:FACTOR] and "
        "cosine[:TOTAL[:ALPHA]], "
        "each optionally followed by ,warmup:STEPS",
        text_, why);
  }

  const std::string& text_;
};

}  // namespace

void check_schedule(const Schedule& schedule) {
  if (const auto* step = std::get_if<StepSchedule>(&schedule.rule)) {
    require(step->every > 0, "a step schedule changes the rate every {} steps; that must be at least 1",
            step->every);
    require(step->factor > 0.0 && std::isfinite(step->factor),
            "a step schedule's factor is {}; it must be positive", step->factor);
  }
  if (const auto* cosine = std::get_if<CosineSchedule>(&schedule.rule)) {
    require(cosine->total_steps >= 0, "a cosine schedule over {} steps; it must have at least 1",
            cosine->total_steps);
    require(cosine->alpha >= 0.0 && cosine->alpha <= 1.0,
            "a cosine schedule's alpha is {}; it must lie in [0, 1]", cosine->alpha);
  }
  require(schedule.warmup_steps >= 0, "a warm-up of {} steps; it must not be negative",
          schedule.warmup_steps);
}

double learning_rate_at(const Schedule& schedule, double base, int64_t step) {
  check_schedule(schedule);
  if (step < schedule.warmup_steps) {
    return base * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  return apply(schedule, base, step - schedule.warmup_steps);
}

Schedule parse_schedule(const std::string& text) {
  return Parser(text).parse();
}

std::string schedule_text(const Schedule& schedule) {
  std::string text = std::visit(
      Overloaded{
          [](const ConstantSchedule&) { return std::string("constant"); },
          [](const StepSchedule& rule) { return fmt::format("step:{}:{}", rule.every, rule.factor); },
          [](const CosineSchedule& rule) {
            if (rule.total_steps == 0 && rule.alpha == 0.0) return std::string("cosine");
            return fmt::format("cosine:{}:{}", rule.total_steps, rule.alpha);
          },
      },
      schedule.rule);
  if (schedule.warmup_steps > 0) text += fmt::format(",warmup:{}", schedule.warmup_steps);
  return text;
}

}  // namespace rondo
