// One training step on one rank, taken apart: what the trainer does with a batch, with a clock between.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "runtime/launch/binding.h"
#include "runtime/train/network.h"

namespace rondo {

class Communicator;
class GradSync;
class GraphNetwork;
class Optimizer;
class StateUpload;
struct PlanStep;

namespace bench {

// Forward: layers. Loss: loss and its gradient. Backward: all gradients into the buckets. Update: optimizer.
enum Phase { kForward, kLoss, kBackward, kUpdate, kStep, kPhases };
constexpr std::array<std::string_view, kPhases> kPhaseNames{"forward", "loss", "backward", "update", "step"};

// Wall time, or the CPU time of all threads of the process. On a machine that others use as well the latter
// leaves out what they took away, except for what they did to the caches; it is for one thread.
enum class ClockKind { kWall, kCpu };

struct StepOptions {
  std::string model = "cnn";
  int64_t batch = 64;
  int threads = 1;
  std::string optimizer = "adam";
  DeviceChoice device = DeviceChoice::kCpu;
  uint64_t seed = 1234;
  ClockKind clock = ClockKind::kWall;
};

// Seconds that one step of the plan took, for each training step since profiling began.
struct StepProfile {
  Phase phase = kForward;
  std::string name;
  std::string implementation;
  std::vector<double> seconds = {};
};

// A model of the zoo on 28 x 28 images, and one fixed synthetic batch: pixels uniform in [0, 1), labels in
// 0..9.
class TrainingStep {
 public:
  // Throws InvalidArgument for an unknown model or optimizer, or a batch or thread count below 1, and
  // Unavailable for a GPU where there is none.
  explicit TrainingStep(const StepOptions& options);
  ~TrainingStep();

  // Runs a step; seconds by phase. The four phases add up to the step. On a GPU the host waits behind each
  // phase, which a training does not.
  std::array<double, kPhases> run();

  // Backend, options and the plan: every step's implementation, layouts and memory.
  std::string describe();

  // From now on every step of the plan is timed by itself, at the cost of two clock readings each. On a GPU
  // it is run several times in a row for that, so that the time is the GPU's and not that of launching one.
  void profile(size_t expected_steps);
  const std::deque<StepProfile>& profiles() const { return profiles_; }

 private:
  double now() const;  // seconds
  double done_at();    // now(), after all work queued so far
  void make_batch();
  void mark_loss();
  void watch(PlanStep& step, Phase phase, size_t expected_steps);
  void update();

  StepOptions options_;
  Binding binding_;
  std::unique_ptr<Communicator> comm_;
  Model model_;
  std::unique_ptr<GraphNetwork> network_;
  std::unique_ptr<GradSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
  Buffer images_;
  Buffer labels_;
  Batch batch_;
  StepState state_;
  std::unique_ptr<StateUpload> upload_;
  Buffer sums_;  // of loss and metrics: double
  size_t sum_count_ = 0;
  double loss_began_ = 0.0;
  std::deque<StepProfile> profiles_;
};

}  // namespace bench
}  // namespace rondo
