// Optimizers, named and defaulted as in tf.keras 2.10.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/optim/schedule.h"
#include "runtime/tensor/step_state.h"

namespace rondo {

class KernelBackend;
struct Execution;

// Applied to the gradient of the global batch, after the reduction; 0 switches a clip off. First
// global_clipnorm c scales all gradients by c / max(norm, c), with the norm over all parameters; then
// clipvalue cuts each element to [-clipvalue, clipvalue]. That is the order of Keras 2.2 and 2.3, whose
// clipnorm is this one; tf.keras cuts first.
struct Clipping {
  double global_clipnorm = 0.0;
  double clipvalue = 0.0;
};

struct SGD {
  double learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
  Schedule schedule = {};
  Clipping clip = {};
};

struct RMSprop {
  double learning_rate = 0.001;
  double rho = 0.9;
  double epsilon = 1e-7;
  Schedule schedule = {};
  Clipping clip = {};
};

struct Adam {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  Schedule schedule = {};
  Clipping clip = {};
};

using OptimizerConfig = std::variant<SGD, RMSprop, Adam>;

// "sgd", "rmsprop", "adam" with Keras' defaults. Throws InvalidArgument that lists the names.
OptimizerConfig optimizer_by_name(std::string_view name);
std::string_view optimizer_name(const OptimizerConfig& config);
// Every setting as text: for start-up agreement and banners.
std::string describe(const OptimizerConfig& config);

// Updates weights in contiguous spans and keeps their slots. Knows neither parameters nor ranks.
class Optimizer {
 public:
  // Throws InvalidArgument for settings out of range (learning_rate < 0, momentum outside [0, 1), ...).
  Optimizer(const OptimizerConfig& config, KernelBackend& backend);
  ~Optimizer();

  // Allocates zeroed slots for spans of these many elements; update(i, ...) then means span i.
  // Throws DeviceError when there is not enough memory.
  void bind(std::span<const int64_t> counts);
  // Fills learning_rate, update and gradient_scale = 1 of the step numbered state.step. Throws
  // InvalidArgument for a cosine schedule whose length nobody gave.
  void begin_step(StepState& state) const;
  // Global-norm clipping: whether it is on. It then needs the squares of all spans, once a step, and clip().
  bool needs_norm() const;
  void add_squares(const Execution& on, int span, std::span<const float> gradients);
  // The sum of squares of each span, as add_squares() wrote it: float64 on the device.
  std::span<const double> squares() const;
  // Scales `state`, which on.state of the updates points to, by the factor for all gradients. Queued as
  // everything else: the host learns nothing.
  void clip(const Execution& on, StepState* state);
  // The norm before clipping, written by clip(): one float64 on the device.
  const double* norm() const;
  // One pass over the span; both have the bound number of elements, else InvalidArgument is thrown. The
  // step's learning rate and scale come from on.state.
  void update(const Execution& on, int span, std::span<float> weights, std::span<const float> gradients);

  // Changes the base rate between steps (callbacks). Throws InvalidArgument unless it is finite and >= 0.
  void set_learning_rate(double rate);
  double learning_rate() const;
  // Cosine schedules without a total decay over a run of this many steps, those of warm-up included.
  void set_total_steps(int64_t steps);
  const OptimizerConfig& config() const;  // with the current base rate

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
