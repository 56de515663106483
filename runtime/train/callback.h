// Callbacks see const reports and answer with a decision; they never reach into the trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rondo {

// Named values in the order they are shown: "loss", metrics, then "val_..." ones.
using Logs = std::vector<std::pair<std::string, double>>;

struct RunReport {  // what is known before the first step
  int64_t epochs = 0;
  int64_t initial_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t samples_per_epoch = 0;
  int64_t batch_size = 0;
  int ranks = 1;
  int rank = 0;
  std::vector<std::string> metric_names;
  bool validates = false;
  bool scales_losses = false;  // mixed precision that scales them: steps may be skipped
};

// Values are over all ranks and equal on all of them.
struct StepReport {
  int64_t epoch = 0;    // from 0
  int64_t step = 0;     // in the epoch, from 0
  int64_t samples = 0;  // rows of this global batch
  double loss = 0.0;    // mean over them
  std::span<const double> metrics;
  double epoch_loss = 0.0;  // sample-weighted mean since the epoch began
  std::span<const double> epoch_metrics;
  int64_t epoch_samples = 0;
  double epoch_seconds = 0.0;  // training time since the epoch began
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // global norm where clipping computes it, else 0
  double loss_scale = 1.0;     // that gradients were multiplied by
  bool skipped = false;        // a gradient was not finite under that scale: no weight has changed
};

struct EpochReport {
  int64_t epoch = 0;
  int64_t samples = 0;
  double seconds = 0.0;  // training part
  double validation_seconds = 0.0;
  double loss_scale = 1.0;    // after the last step
  int64_t skipped_steps = 0;  // in which a gradient was not finite under their scale
  Logs logs;  // loss, metrics, val_loss and val_metrics where there was a validation, callbacks' own
};

// Seconds this rank spent, and what it took: reported per rank at the end.
struct Usage {
  double seconds = 0.0;
  double compute_seconds = 0.0;
  double communication_seconds = 0.0;  // blocked on other ranks
  double input_seconds = 0.0;          // blocked on the loader
  int64_t peak_memory_bytes = 0;       // resident, of the process
  int64_t peak_device_bytes = 0;       // in buffers of the device, where it is not the host's memory
};

struct EndReport {
  int64_t epochs_done = 0;
  int64_t steps_done = 0;
  int64_t samples = 0;  // trained on, over all ranks
  double seconds = 0.0;
  // The callbacks that stopped the run, with the ranks they ran on unless all asked; empty: ran to its end.
  std::string stopped_by;
  std::string stop_reason;   // what the first of them gave as its reason
  std::vector<Usage> ranks;  // gathered from all, in rank order
};

enum class Decision : uint8_t { kContinue, kStop };

// Copies of all weights of a network, in their layouts, on the host.
struct WeightSnapshot {
  std::vector<std::vector<std::byte>> values;
};

// What callbacks that decide may do to the training. They run on every rank and must do the same on all:
// ranks compare the rate after every round of callbacks, and where it differs all of them end with
// MismatchError.
class TrainingControl {
 public:
  virtual ~TrainingControl() = default;
  // The base rate, in front of schedule and decay.
  virtual double learning_rate() const = 0;
  // From the next step on. Throws InvalidArgument unless it is finite and at least 0.
  virtual void set_learning_rate(double rate) = 0;
  // Collective. Merges what ranks know differently (moving means) and waits for the steps queued so far:
  // before weights are saved.
  virtual void merge_statistics() = 0;
  // Collective, as merge_statistics. Keeps the memory that `into` has.
  virtual void save_weights(WeightSnapshot& into) = 0;
  // Local. Takes back what save_weights of the same network gave.
  virtual void restore_weights(const WeightSnapshot& from) = 0;
};

// Replaces the value of `name`, or puts it at the end.
void set_log(Logs& logs, const std::string& name, double value);

// One object per rank. Callbacks that decide run on every rank; those that only watch (print, log) may be
// given to one rank. When any rank's callback says kStop, all ranks stop together: at the end of the next
// step for step decisions, after the epoch for epoch decisions. On devices that work by themselves, steps are
// reported while the next ones are already queued, and those are finished and reported too: a few more steps
// pass, the same number on every rank. An exception ends the run on all ranks; its text then names the
// callback.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual std::string name() const = 0;  // for stopped_by and messages
  // False for callbacks that always answer kContinue: ranks need not have the same ones.
  virtual bool decides() const { return true; }
  // After a kStop: why, for people.
  virtual std::string reason() const { return {}; }

  // Before training begins; `control` is good until it ends.
  virtual void attach(TrainingControl& /*control*/) {}
  virtual void on_train_begin(const RunReport&) {}
  virtual void on_epoch_begin(int64_t /*epoch*/) {}
  virtual Decision on_step_end(const StepReport&) { return Decision::kContinue; }
  // Before on_epoch_end: values of its own, which callbacks behind it and the history see too.
  virtual void add_logs(Logs&) {}
  virtual Decision on_epoch_end(const EpochReport&) { return Decision::kContinue; }
  virtual void on_train_end(const EndReport&) {}
};

}  // namespace rondo
