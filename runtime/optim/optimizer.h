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

// Applied to the gradient of the global batch, after the reduction; 0 switches a clip off. First clipvalue
// cuts each element to [-clipvalue, clipvalue]; then clipnorm c scales each parameter's gradient by c /
// max(norm, c), or global_clipnorm all gradients, with the norm over all parameters. That is the order of
// tf.keras 2.10, which also takes only one of the two norms. (Keras 2.2 and 2.3 have one norm, the global
// one, which they call clipnorm and apply before clipvalue.)
struct Clipping {
  double global_clipnorm = 0.0;
  double clipvalue = 0.0;
  double clipnorm = 0.0;
};

// What all optimizers have in common. The step's rate is schedule(learning_rate) / (1 + decay * steps done).

struct SGD {
  double learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

struct RMSprop {
  double learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  bool centered = false;
  bool epsilon_inside = false;  // sqrt(mean + epsilon) without momentum too, as Keras 2.11 and later
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

struct Adagrad {
  double learning_rate = 0.001;
  double initial_accumulator_value = 0.1;  // Keras 2.2 and 2.3: 0, with a rate of 0.01
  double epsilon = 1e-7;
  bool epsilon_inside = false;  // Keras 2.11 and later
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

struct Adadelta {
  double learning_rate = 0.001;  // Keras 2.2 and 2.3: 1
  double rho = 0.95;
  double epsilon = 1e-7;
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

struct Adam {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

// As Keras 2.11: w -= rate * weight_decay * w before Adam's update.
struct AdamW {
  double learning_rate = 0.001;
  double weight_decay = 0.004;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  // Parameters whose names contain one of these do not decay: {"bias", "gamma", "beta"}.
  std::vector<std::string> exclude_from_weight_decay = {};
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

struct Adamax {
  double learning_rate = 0.001;  // Keras 2.2 and 2.3: 0.002
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

struct Nadam {
  double learning_rate = 0.001;  // Keras 2.2 and 2.3: 0.002
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double schedule_decay = 0.004;  // of the momentum, not of the rate; Keras 2.11 and later: 1
  Schedule schedule = {};
  Clipping clip = {};
};

// For large batches: each parameter's step is scaled by the norms of its weights and gradient. Formula in
// runtime/base/update_rules.h; not of Keras.
struct LARS {
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 1e-4;
  double trust_coefficient = 0.001;
  double epsilon = 1e-9;
  // Parameters whose names contain one of these neither decay nor are scaled by their norms.
  std::vector<std::string> exclude_from_weight_decay = {"bias", "gamma", "beta"};
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

// Adam's counterpart, with the defaults of TensorFlow Addons.
struct LAMB {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  std::vector<std::string> exclude_from_weight_decay = {};  // as LARS
  double decay = 0.0;
  Schedule schedule = {};
  Clipping clip = {};
};

using OptimizerConfig = std::variant<SGD, RMSprop, Adam, Adagrad, Adadelta, AdamW, Adamax, Nadam, LARS, LAMB>;

// "sgd", "rmsprop", "adam", "adagrad", "adadelta", "adamw", "adamax", "nadam", "lars", "lamb" with the
// defaults above, in any case: "RMSprop". Throws InvalidArgument that lists the names.
OptimizerConfig optimizer_by_name(std::string_view name);
std::string_view optimizer_name(const OptimizerConfig& config);
// The name of Keras' class, which begins its state's names: "RMSprop".
std::string_view optimizer_class(const OptimizerConfig& config);
// Every setting as text: for start-up agreement and banners.
std::string describe(const OptimizerConfig& config);
// What the optimizer keeps for each weight, named and ordered as in tf.keras' files: {"m", "v"} of Adam,
// {"rms", "momentum", "mg"} of RMSprop with all it can have, {} of SGD without momentum.
std::vector<std::string> slot_names(const OptimizerConfig& config);

// One parameter's place in a span.
struct SpanTensor {
  std::string name;
  int64_t offset = 0;
  int64_t count = 0;
};
struct SpanLayout {
  int64_t count = 0;
  std::vector<SpanTensor> tensors;  // in ascending order
};

// Updates weights in contiguous spans and keeps their slots. Knows neither parameters nor ranks.
class Optimizer {
 public:
  // Throws InvalidArgument for settings out of range (learning_rate < 0, momentum outside [0, 1), ...).
  Optimizer(const OptimizerConfig& config, KernelBackend& backend);
  ~Optimizer();

  // Allocates slots in their initial state for these spans; update(i, ...) then means span i. Throws
  // DeviceError when there is not enough memory.
  void bind(std::span<const SpanLayout> spans);
  // Spans of these many elements, each one parameter.
  void bind(std::span<const int64_t> counts);
  // Fills learning_rate, update, momentum_product, momentum_updates and gradient_scale = clip_scale = 1 of
  // the step numbered state.step. Throws InvalidArgument for a cosine schedule whose length nobody gave.
  void begin_step(StepState& state);
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

  // Slot `slot` (as slot_names counts) of span `span`: memory of the device that updates read and write, laid
  // out as the weights.
  std::span<float> slot(int span, int slot);

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
