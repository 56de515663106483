#pragma once

#include <optional>
#include <vector>

#include "runtime/base/stopwatch.h"
#include "runtime/train/batch_stream.h"
#include "runtime/train/callback_list.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/trainer_state.h"

namespace rondo {

// One call of Trainer::fit.
class FitRun {
 public:
  // Local: makes the loaders and prepares the network for every batch of the run.
  FitRun(TrainerState& state, const Source& data, const FitOptions& options);

  // Collective.
  History run();

 private:
  void train();
  void epoch();
  void step();
  void begin_step(const Share& share);
  void write_tail();
  void update_weights();
  void read_tail();
  void finish_step(const Share& share);

  EpochReport finish_epoch(double seconds);
  void merge_statistics();
  bool agree_to_stop();
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
  RunReport run_;

  // The step in hand.
  Batch batch_;
  StepState step_state_;
  StepReport report_;
  std::vector<double> sums_;   // of this rank's rows, then of all ranks'
  std::vector<double> means_;  // of the step
  bool stopping_ = false;      // a rank's vote has arrived

  // Since the epoch began.
  Stopwatch epoch_watch_;
  int64_t epoch_ = 0;
  int64_t step_ = 0;
  int64_t epoch_samples_ = 0;
  std::vector<double> epoch_sums_;
  std::vector<double> epoch_means_;

  // Since the run began.
  Stopwatch run_watch_;
  int64_t steps_done_ = 0;
  int64_t samples_ = 0;
  double busy_seconds_ = 0.0;  // in steps, validation and agreement
  double collectives_before_ = 0.0;
  History history_;
};

}  // namespace rondo
