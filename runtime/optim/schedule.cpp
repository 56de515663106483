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

double quotient(int64_t step, int64_t every, bool whole) {
  return whole ? static_cast<double>(step / every) : static_cast<double>(step) / static_cast<double>(every);
}

double cosine(const CosineSchedule& rule, double base, int64_t step) {
  require(rule.total_steps > 0, "a cosine schedule needs its number of steps; give cosine:TOTAL");
  if (rule.warmup_target) {
    if (step < rule.warmup_steps) {
      return base + (*rule.warmup_target - base) * quotient(step, rule.warmup_steps, false);
    }
    base = *rule.warmup_target;
    step -= rule.warmup_steps;
  }
  const double done = quotient(std::min(step, rule.total_steps), rule.total_steps, false);
  return base * ((1.0 - rule.alpha) * 0.5 * (1.0 + std::cos(std::numbers::pi * done)) + rule.alpha);
}

double polynomial(const PolynomialSchedule& rule, double base, int64_t step) {
  int64_t total = rule.total_steps;
  if (rule.cycle) {
    total *= std::max<int64_t>(1, (step + rule.total_steps - 1) / rule.total_steps);
  }
  const double left = 1.0 - quotient(std::min(step, total), total, false);
  return (base - rule.end) * std::pow(left, rule.power) + rule.end;
}

double apply(const Schedule& schedule, double base, int64_t step) {
  return std::visit(Overloaded{
                        [&](const ConstantSchedule&) { return base; },
                        [&](const StepSchedule& rule) {
                          return base * std::pow(rule.factor, static_cast<double>(step / rule.every));
                        },
                        [&](const CosineSchedule& rule) { return cosine(rule, base, step); },
                        [&](const ExponentialSchedule& rule) {
                          return base * std::pow(rule.rate, quotient(step, rule.every, rule.staircase));
                        },
                        [&](const PiecewiseSchedule& rule) {
                          const auto at =
                              std::lower_bound(rule.boundaries.begin(), rule.boundaries.end(), step);
                          return rule.values[static_cast<size_t>(at - rule.boundaries.begin())];
                        },
                        [&](const PolynomialSchedule& rule) { return polynomial(rule, base, step); },
                        [&](const InverseTimeSchedule& rule) {
                          return base / (1.0 + rule.rate * quotient(step, rule.every, rule.staircase));
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
    } else if ((name == "exponential" || name == "inverse") && (parts.size() == 3 || parts.size() == 4)) {
      const auto every = number<int64_t>(parts[1]);
      const auto rate = number<double>(parts[2]);
      const bool staircase = parts.size() == 4 && flag(parts[3], "staircase");
      if (name == "inverse") {
        schedule.rule = InverseTimeSchedule{.every = every, .rate = rate, .staircase = staircase};
      } else {
        schedule.rule = ExponentialSchedule{.every = every, .rate = rate, .staircase = staircase};
      }
    } else if (name == "polynomial" && parts.size() >= 2 && parts.size() <= 5) {
      PolynomialSchedule polynomial{.total_steps = number<int64_t>(parts[1])};
      if (parts.size() >= 3) polynomial.end = number<double>(parts[2]);
      if (parts.size() >= 4) polynomial.power = number<double>(parts[3]);
      polynomial.cycle = parts.size() == 5 && flag(parts[4], "cycle");
      schedule.rule = polynomial;
    } else if (name == "piecewise" && parts.size() >= 4 && parts.size() % 2 == 0) {
      PiecewiseSchedule piecewise{.boundaries = {}, .values = {number<double>(parts[1])}};
      for (size_t i = 2; i < parts.size(); i += 2) {
        piecewise.boundaries.push_back(number<int64_t>(parts[i]));
        piecewise.values.push_back(number<double>(parts[i + 1]));
      }
      schedule.rule = piecewise;
    } else {
      fail("not one of the forms");
    }
    return schedule;
  }

  bool flag(std::string_view part, std::string_view word) const {
    if (part != word) fail(fmt::format("\"{}\" stands where only {} may stand", part, word));
    return true;
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
        "learning-rate schedule \"{}\": {}; the forms are constant, step:EVERY[:FACTOR], "
        "cosine[:TOTAL[:ALPHA]], exponential:EVERY:RATE[:staircase], inverse:EVERY:RATE[:staircase], "
        "polynomial:TOTAL[:END[:POWER[:cycle]]] and piecewise:VALUE:STEP:VALUE[:STEP:VALUE...], each "
        "optionally followed by ,warmup:STEPS",
        text_, why);
  }

  const std::string& text_;
};

void check_steps(std::string_view schedule, int64_t steps) {
  require(steps > 0, "a schedule of kind {} over {} steps; there must be at least 1", schedule, steps);
}
void check_rate(std::string_view schedule, std::string_view what, double value) {
  require(value >= 0.0 && std::isfinite(value),
          "the {} of a schedule of kind {} is {}; it must be a number of at least 0", what, schedule, value);
}
void check_piecewise(const PiecewiseSchedule& rule) {
  require(rule.values.size() == rule.boundaries.size() + 1,
          "a piecewise schedule has {} boundaries and {} values; it must have one value more than boundaries",
          rule.boundaries.size(), rule.values.size());
  for (const double value : rule.values) check_rate("piecewise", "value", value);
  for (size_t i = 0; i < rule.boundaries.size(); ++i) {
    const int64_t least = i == 0 ? 0 : rule.boundaries[i - 1] + 1;
    require(rule.boundaries[i] >= least, "boundary {} of a piecewise schedule is {}; it must be at least {}",
            i, rule.boundaries[i], least);
  }
}

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
    require(cosine->warmup_steps >= 0, "a cosine schedule's warm-up of {} steps; it must not be negative",
            cosine->warmup_steps);
    if (cosine->warmup_target) check_rate("cosine", "warmup_target", *cosine->warmup_target);
  }
  if (const auto* exponential = std::get_if<ExponentialSchedule>(&schedule.rule)) {
    check_steps("exponential", exponential->every);
    check_rate("exponential", "rate", exponential->rate);
  }
  if (const auto* inverse = std::get_if<InverseTimeSchedule>(&schedule.rule)) {
    check_steps("inverse", inverse->every);
    check_rate("inverse", "rate", inverse->rate);
  }
  if (const auto* polynomial = std::get_if<PolynomialSchedule>(&schedule.rule)) {
    check_steps("polynomial", polynomial->total_steps);
    check_rate("polynomial", "end", polynomial->end);
    check_rate("polynomial", "power", polynomial->power);
  }
  if (const auto* piecewise = std::get_if<PiecewiseSchedule>(&schedule.rule)) check_piecewise(*piecewise);
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
            if (rule.warmup_target) {
              return fmt::format("cosine:{}:{} from {} after {} steps", rule.total_steps, rule.alpha,
                                 *rule.warmup_target, rule.warmup_steps);
            }
            if (rule.total_steps == 0 && rule.alpha == 0.0) return std::string("cosine");
            return fmt::format("cosine:{}:{}", rule.total_steps, rule.alpha);
          },
          [](const ExponentialSchedule& rule) {
            return fmt::format("exponential:{}:{}{}", rule.every, rule.rate,
                               rule.staircase ? ":staircase" : "");
          },
          [](const PiecewiseSchedule& rule) {
            std::string out = fmt::format("piecewise:{}", rule.values.front());
            for (size_t i = 0; i < rule.boundaries.size(); ++i) {
              out += fmt::format(":{}:{}", rule.boundaries[i], rule.values[i + 1]);
            }
            return out;
          },
          [](const PolynomialSchedule& rule) {
            return fmt::format("polynomial:{}:{}:{}{}", rule.total_steps, rule.end, rule.power,
                               rule.cycle ? ":cycle" : "");
          },
          [](const InverseTimeSchedule& rule) {
            return fmt::format("inverse:{}:{}{}", rule.every, rule.rate, rule.staircase ? ":staircase" : "");
          },
      },
      schedule.rule);
  if (schedule.warmup_steps > 0) text += fmt::format(",warmup:{}", schedule.warmup_steps);
  return text;
}

}  // namespace rondo
