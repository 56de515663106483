#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/stopwatch.h"
#include "runtime/device/quiet_at_end.h"
#include "runtime/train/batch_stream.h"
#include "runtime/train/callback_list.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/fit_control.h"
#include "runtime/train/read_back.h"
#include "runtime/train/state_upload.h"
#include "runtime/train/step_replay.h"
#include "runtime/train/trainer_state.h"

namespace rondo {

class TailKernel;

// What a step sends to the host, by offset in bytes: the gradients' norm, the loss scale after the step, and
// the tail of the last bucket.
struct StepResult {
  static constexpr int64_t kNorm = 0;
  static constexpr int64_t kScale = sizeof(double);
  static constexpr int64_t kTail = kScale + sizeof(LossScale);
};

// One call of Trainer::fit.
//
// A step is queued (queue_step) and, when the device has worked it off, reported (report_oldest). On hosts
// the one follows the other. On other devices TrainerState::run_ahead() steps are queued behind the one that
// is waited for; what must be equal on all ranks depends on the order of these calls only, never on how far a
// device is.
class FitRun {
 public:
  // Local: makes the loaders and prepares the network for every batch of the run.
  FitRun(TrainerState& state, const Source& data, const FitOptions& options);
  ~FitRun();

  // Collective.
  History run();

 private:
  void train();
  void check_overflows();
  void epoch();
  void queue_step();
  void queue_work(const DeviceBatch& input);
  void begin_step(const Share& share);
  void update_weights(const Execution& on);
  void send_results();
  void report_oldest();
  void read_results();
  void read_scale(const LossScale& after);
  void count(const Share& share);

  EpochReport finish_epoch(double seconds);
  void merge_statistics();
  bool agree_to_stop();
  bool validates_after(int64_t epoch) const;
  void record(const EpochReport& report);
  EndReport finish();
  void tell_who_stopped(EndReport& end);
  Usage usage() const;
  std::string where() const;

  TrainerState& state_;
  const FitOptions options_;
  const std::vector<std::string> names_;  // loss, metrics
  BatchStream input_;
  std::optional<Evaluation> validation_;
  CallbackList callbacks_;
  FitControl control_;
  RunReport run_;

  // The step being queued.
  StepState step_state_;
  StateUpload states_;
  Buffer device_sums_;  // of this rank's rows
  std::unique_ptr<TailKernel> tail_;
  StepReplay replay_;

  // Steps that were queued and not reported yet, oldest first from queued_ - results_.underway().
  struct Queued {
    Share share;
    double learning_rate = 0.0;
  };
  std::vector<Queued> queue_;  // by number of the step in the run, cyclic
  int64_t queued_ = 0;
  ReadBack results_;

  // The step being reported.
  StepReport report_;
  std::vector<double> sums_;   // of all ranks' rows, for loss and metrics
  std::vector<double> means_;  // of the step
  bool stopping_ = false;      // a rank's vote has arrived

  // Since the epoch began.
  Stopwatch epoch_watch_;
  int64_t epoch_ = 0;
  int64_t step_ = 0;      // the next to be queued
  int64_t reported_ = 0;  // steps
  int64_t at_step_ = 0;   // the step in hand, for messages
  int64_t epoch_samples_ = 0;
  int64_t epoch_counted_ = 0;  // of these, the samples in the means
  std::vector<double> epoch_sums_;
  std::vector<double> epoch_means_;

  // Since the run began.
  Stopwatch run_watch_;
  int64_t steps_done_ = 0;
  int64_t samples_ = 0;
  int64_t skipped_ = 0;         // steps, by loss scaling
  int64_t skipped_before_ = 0;  // ... when the epoch began
  std::string overflow_;        // why the run cannot go on
  double busy_seconds_ = 0.0;   // in steps, validation and agreement
  double collectives_before_ = 0.0;
  History history_;
  QuietAtEnd quiet_;
};

}  // namespace rondo
