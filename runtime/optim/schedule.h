#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace rondo {

// Learning-rate schedules. Steps count finished updates from 0, over all epochs. `total_steps` 0 stands for
// "the length of the run", which the trainer fills in.
struct ConstantSchedule {};

// base * factor^floor(step / every): Keras' ExponentialDecay with staircase=True.
struct StepSchedule {
  int64_t every = 0;
  double factor = 0.1;
};

// base * ((1 - alpha) (1 + cos(pi min(step, total) / total)) / 2 + alpha): Keras' CosineDecay. That of Keras
// 2.13 also warms up: with a warmup_target the rate rises linearly from base to it over warmup_steps, and the
// cosine then begins there.
struct CosineSchedule {
  int64_t total_steps = 0;
  double alpha = 0.0;
  std::optional<double> warmup_target = std::nullopt;
  int64_t warmup_steps = 0;
};

// base * rate^(step / every), of the whole quotient where `staircase`: Keras' ExponentialDecay.
struct ExponentialSchedule {
  int64_t every = 0;  // decay_steps
  double rate = 0.96;
  bool staircase = false;
};

// values[0] up to and including step boundaries[0], values[1] up to boundaries[1], ..., the last one for
// ever: Keras' PiecewiseConstantDecay. The values stand in the place of the base rate.
struct PiecewiseSchedule {
  std::vector<int64_t> boundaries;
  std::vector<double> values;  // one more
};

// (base - end) (1 - min(step, total) / total)^power + end: Keras' PolynomialDecay. With `cycle` total is
// stretched to the next multiple of it that step has not passed.
struct PolynomialSchedule {
  int64_t total_steps = 0;
  double end = 1e-4;
  double power = 1.0;
  bool cycle = false;
};

// base / (1 + rate step / every), of the whole quotient where `staircase`: Keras' InverseTimeDecay.
struct InverseTimeSchedule {
  int64_t every = 0;  // decay_steps
  double rate = 0.5;
  bool staircase = false;
};

struct Schedule {
  std::variant<ConstantSchedule, StepSchedule, CosineSchedule, ExponentialSchedule, PiecewiseSchedule,
               PolynomialSchedule, InverseTimeSchedule>
      rule = {};
  // Linear warm-up: the rate rises from base / warmup_steps to base over the first warmup_steps steps; the
  // rule then starts counting from 0.
  int64_t warmup_steps = 0;
};

// Throws InvalidArgument that names the number that is out of range: steps must be positive (a total of 0 is
// left open in a cosine), rates, factors and values finite and not negative, boundaries ascending.
void check_schedule(const Schedule& schedule);

// The learning rate of step `step`. Throws what check_schedule throws, and InvalidArgument for a cosine
// without total_steps.
double learning_rate_at(const Schedule& schedule, double base, int64_t step);

// Reads the command line's form: "constant", "step:EVERY[:FACTOR]", "cosine[:TOTAL[:ALPHA]]",
// "exponential:EVERY:RATE[:staircase]", "inverse:EVERY:RATE[:staircase]",
// "polynomial:TOTAL[:END[:POWER[:cycle]]]", "piecewise:VALUE:STEP:VALUE[:STEP:VALUE...]", each optionally
// followed by ",warmup:STEPS". Throws InvalidArgument that quotes the text and lists the forms.
Schedule parse_schedule(const std::string& text);
// The same form, with every number: "step:1000:0.1,warmup:50".
std::string schedule_text(const Schedule& schedule);

}  // namespace rondo
