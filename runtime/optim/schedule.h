#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace rondo {

// Learning-rate schedules. Steps count finished updates from 0, over all epochs. `total_steps` 0 stands for
// "the length of the run", which the trainer fills in.
struct ConstantSchedule {};

// base * factor^floor(step / every): Keras' ExponentialDecay with staircase=True.
struct StepSchedule {
  int64_t every = 0;
  double factor = 0.1;
};

// base * ((1 - alpha) (1 + cos(pi min(step, total) / total)) / 2 + alpha): Keras' CosineDecay.
struct CosineSchedule {
  int64_t total_steps = 0;
  double alpha = 0.0;
};

struct Schedule {
  std::variant<ConstantSchedule, StepSchedule, CosineSchedule> rule = {};
  // Linear warm-up: the rate rises from base / warmup_steps to base over the first warmup_steps steps; the
  // rule then starts counting from 0.
  int64_t warmup_steps = 0;
};

// Throws InvalidArgument unless every > 0, factor > 0, total_steps >= 0, 0 <= alpha <= 1 and warmup_steps >=
// 0.
void check_schedule(const Schedule& schedule);

// The learning rate of step `step`. Throws what check_schedule throws, and InvalidArgument for a cosine
// without total_steps.
double learning_rate_at(const Schedule& schedule, double base, int64_t step);

// Reads the command line's form: "constant", "step:EVERY[:FACTOR]", "cosine[:TOTAL[:ALPHA]]", each optionally
// followed by ",warmup:STEPS". Throws InvalidArgument that quotes the text and lists the forms.
Schedule parse_schedule(const std::string& text);
// The same form, with every number: "step:1000:0.1,warmup:50".
std::string schedule_text(const Schedule& schedule);

}  // namespace rondo
