#include "runtime/train/fit_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/source.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/step.h"
#include "runtime/train/reports.h"

namespace rondo {

namespace {

SamplerOptions training_order(const Communicator& comm, const Source& data, const FitOptions& options) {
  return {.size = data.size(),
          .batch = options.batch_size,
          .seed = options.seed,
          .shuffle = options.shuffle,
          .rank = comm.rank(),
          .world = comm.size()};
}

int64_t result_bytes(size_t values) {
  return StepResult::kTail + static_cast<int64_t>((values + 1) * sizeof(float));
}

}  // namespace

FitRun::~FitRun() = default;

FitRun::FitRun(TrainerState& state, const Source& data, const FitOptions& options)
    : state_(state),
      options_(options),
      names_(value_names(state.network)),
      input_(data, training_order(state.comm, data, options), options.loader_threads, state.device()),
      callbacks_(options.callbacks),
      control_(state),
      states_(state.device(), state.run_ahead() + 1),
      device_sums_(state.device().allocate(static_cast<int64_t>(state.network.sum_count() * sizeof(double)))),
      tail_(state.backend.tail()),
      replay_(state,
              {.wanted = options.replay_steps, .full_rows = std::min(options.batch_size, data.size())}),
      queue_(static_cast<size_t>(state.run_ahead() + 1)),
      results_(state.device(), result_bytes(state.network.sum_count()), state.run_ahead() + 1),
      sums_(state.network.sum_count()),
      means_(names_.size()),
      epoch_sums_(state.network.sum_count()),
      epoch_means_(names_.size()),
      quiet_(*state.stream) {
  prepare_shares(state.network, training_order(state.comm, data, options), Mode::kTraining);
  if (options.validation != nullptr) {
    const int64_t batch =
        options.validation_batch_size > 0 ? options.validation_batch_size : options.batch_size;
    validation_.emplace(state, *options.validation, batch, options.loader_threads);
  }
  const int64_t pass = input_.batches_per_pass();
  run_.epochs = options.epochs;
  run_.initial_epoch = options.initial_epoch;
  run_.steps_per_epoch = options.steps_per_epoch > 0 ? options.steps_per_epoch : pass;
  // Of an epoch that is one pass; other lengths contain short batches at different places.
  run_.samples_per_epoch = run_.steps_per_epoch == pass
                               ? data.size()
                               : run_.steps_per_epoch * std::min(options.batch_size, data.size());
  run_.batch_size = options.batch_size;
  run_.ranks = state.comm.size();
  run_.rank = state.comm.rank();
  run_.metric_names.assign(names_.begin() + 1, names_.end());
  run_.validates = validation_.has_value();
  run_.scales_losses = state.loss_scaler != nullptr;
}

History FitRun::run() {
  collectives_before_ = state_.collective_seconds + state_.sync->seconds();
  const int64_t epochs = std::max<int64_t>(options_.epochs - options_.initial_epoch, 0);
  state_.optimizer->set_total_steps(state_.steps_done + epochs * run_.steps_per_epoch);
  epoch_ = options_.initial_epoch;
  all_or_none(state_.comm, "starting to train", [&] { callbacks_.train_begin(run_, control_); });
  tell_peers(
      state_.comm, [&] { return where(); }, [&] { train(); });
  check_overflows();
  history_.end = finish();
  all_or_none(state_.comm, "ending the training", [&] { callbacks_.train_end(history_.end); });
  return std::move(history_);
}

// All ranks come to the same end.
void FitRun::check_overflows() {
  if (overflow_.empty() && skipped_ > 0 && skipped_ == steps_done_) {
    overflow_ = fmt::format(
        "gradients were not finite in any of the {} steps, so that no weight has changed; the loss scale is "
        "down "
        "to {:g}. Train for more steps, or begin with a smaller scale",
        steps_done_, state_.known_scale.scale);
  }
  if (overflow_.empty()) return;
  all_or_none(state_.comm, "training", [&] { throw NumericError(overflow_); });
}

void FitRun::train() {
  input_.seek(options_.initial_epoch * run_.steps_per_epoch);
  for (epoch_ = options_.initial_epoch; epoch_ < options_.epochs; ++epoch_) {
    epoch();
    if (stopping_) break;
  }
  merge_statistics();
}

void FitRun::merge_statistics() {
  const Timed busy(busy_seconds_);
  const Timed timed(state_.collective_seconds);
  state_.statistics->merge();
}

void FitRun::epoch() {
  epoch_watch_.restart();
  epoch_samples_ = epoch_counted_ = 0;
  std::fill(epoch_sums_.begin(), epoch_sums_.end(), 0.0);
  callbacks_.epoch_begin(epoch_);
  if (callbacks_.decides()) agree_to_stop();  // on the rate
  reported_ = 0;
  for (step_ = 0; step_ < run_.steps_per_epoch && !stopping_;) {
    at_step_ = step_;
    {
      const Timed timed(busy_seconds_);
      queue_step();
    }
    ++step_;
    if (results_.underway() > state_.run_ahead()) report_oldest();
  }
  while (results_.underway() > 0) report_oldest();
  if (!overflow_.empty()) return;
  at_step_ = step_;
  const double seconds = epoch_watch_.seconds();
  if (!stopping_ && epoch_ + 1 < options_.epochs) input_.read_ahead();

  EpochReport report = finish_epoch(seconds);
  callbacks_.epoch_end(report);
  record(report);
  if (!stopping_) stopping_ = agree_to_stop();
}

EpochReport FitRun::finish_epoch(double seconds) {
  EpochReport report;
  report.epoch = epoch_;
  report.samples = epoch_samples_;
  report.seconds = seconds;
  report.loss_scale = state_.loss_scaler ? static_cast<double>(state_.known_scale.scale) : 1.0;
  report.skipped_steps = skipped_ - skipped_before_;
  skipped_before_ = skipped_;
  for (size_t i = 0; i < names_.size(); ++i) report.logs.emplace_back(names_[i], epoch_means_[i]);
  if (!validates_after(epoch_)) return report;

  const Stopwatch watch;
  std::vector<double> values(names_.size(), std::numeric_limits<double>::quiet_NaN());
  if (std::isfinite(epoch_means_[0])) {
    merge_statistics();
    const Timed timed(busy_seconds_);
    values = validation_->run();
  }
  for (size_t i = 0; i < names_.size(); ++i) report.logs.emplace_back("val_" + names_[i], values[i]);
  report.validation_seconds = watch.seconds();
  return report;
}

bool FitRun::agree_to_stop() {
  const Timed busy(busy_seconds_);
  const Timed timed(state_.collective_seconds);
  return control_.agree(callbacks_.wants_stop());
}

bool FitRun::validates_after(int64_t epoch) const {
  if (!validation_) return false;
  if (options_.validation_epochs.empty()) return (epoch + 1) % options_.validation_freq == 0;
  const auto& epochs = options_.validation_epochs;
  return std::find(epochs.begin(), epochs.end(), epoch + 1) != epochs.end();
}

// A name gets its column when it comes up first: not every epoch is validated.
void FitRun::record(const EpochReport& report) {
  auto& columns = history_.history;
  history_.epoch.push_back(report.epoch);
  for (const auto& [name, value] : report.logs) {
    auto column =
        std::find_if(columns.begin(), columns.end(), [&](const auto& c) { return c.first == name; });
    if (column == columns.end()) column = columns.emplace(columns.end(), name, std::vector<double>());
    column->second.push_back(value);
  }
}

EndReport FitRun::finish() {
  EndReport end;
  end.epochs_done = static_cast<int64_t>(history_.epoch.size());
  end.steps_done = steps_done_;
  end.samples = samples_;
  end.seconds = run_watch_.seconds();
  if (stopping_) tell_who_stopped(end);
  end.ranks = gather_usage(state_.comm, usage());
  return end;
}

void FitRun::tell_who_stopped(EndReport& end) {
  const Stopper mine{.name = callbacks_.stopper(), .reason = callbacks_.reason()};
  const Stopper all = gather_stoppers(state_.comm, mine);
  end.stopped_by = all.name;
  end.stop_reason = all.reason;
}

Usage FitRun::usage() const {
  Usage usage;
  usage.seconds = run_watch_.seconds();
  usage.communication_seconds = state_.collective_seconds + state_.sync->seconds() - collectives_before_;
  usage.input_seconds = input_.wait_seconds() + (validation_ ? validation_->wait_seconds() : 0.0);
  usage.compute_seconds = std::max(0.0, busy_seconds_ - usage.communication_seconds - usage.input_seconds);
  usage.peak_memory_bytes = peak_memory_bytes();
  if (!state_.device().host_accessible()) usage.peak_device_bytes = state_.device().memory().peak;
  return usage;
}

std::string FitRun::where() const {
  return fmt::format("epoch {}/{}, step {}/{}: ", epoch_ + 1, options_.epochs,
                     std::min(at_step_ + 1, run_.steps_per_epoch), run_.steps_per_epoch);
}

}  // namespace rondo
