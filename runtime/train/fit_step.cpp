// The life of a training batch.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/kernels/step.h"
#include "runtime/train/fit_run.h"

namespace rondo {

void FitRun::queue_step() {
  Stream& stream = *state_.stream;
  const DeviceBatch& input = input_.next(stream);
  begin_step(input.share);
  replay_.run(input, [this, &input] { queue_work(input); });
  input_.done(stream);
  send_results();

  state_.statistics->saw(input.share.rows, input.share.global_rows);
  ++state_.steps_done;
}

// May run once for many steps: nothing here may depend on the step but through the device's step state.
void FitRun::queue_work(const DeviceBatch& input) {
  Stream& stream = *state_.stream;
  GradSync& sync = *state_.sync;
  const std::span<double> sums(device_sums_.as<double>(), sums_.size());
  const bool has_rows = input.share.rows > 0;  // a small batch may leave nothing for this rank
  const Execution on{.stream = stream, .state = states_.device()};
  if (state_.loss_scaler) {
    state_.loss_scaler->begin(on, state_.loss_scale.as<LossScale>(), states_.device());
  }
  if (has_rows) {
    state_.network.forward(on, input.batch, Mode::kTraining, sums);
  } else {
    stream.fill_zero(device_sums_.data(), device_sums_.bytes());
  }
  sync.begin(stream);
  // Sums, not means: counts (of right answers) stay exact in float32.
  tail_->run(on, sums.data(), static_cast<int64_t>(sums.size()), sync.tail().data());
  if (has_rows) {
    state_.network.backward(on, sync);  // buckets are on their way as soon as they are full
  } else {
    sync.contribute_zeros();
  }
  update_weights(on);
}

void FitRun::begin_step(const Share& share) {
  step_state_.seed = options_.seed;
  // The optimizer does not count skipped steps: so far as the host knows of them, and the device of all.
  step_state_.step = state_.steps_done - state_.known_scale.skipped;
  step_state_.first_row = share.first_row;
  step_state_.inverse_batch =
      state_.network.sums_loss() ? 1.0f : 1.0f / static_cast<float>(share.global_rows);
  step_state_.vote = callbacks_.wants_stop() ? 1.0f : 0.0f;
  state_.optimizer->begin_step(step_state_);
  step_state_.step = state_.steps_done;
  step_state_.update += state_.known_scale.skipped;
  states_.send(*state_.stream, step_state_);
  queue_[static_cast<size_t>(queued_++) % queue_.size()] = {
      .share = share, .learning_rate = static_cast<double>(step_state_.learning_rate)};
}

void FitRun::update_weights(const Execution& on) {
  GradSync& sync = *state_.sync;
  Optimizer& optimizer = *state_.optimizer;
  const bool needs_squares = optimizer.needs_norm() || state_.loss_scaler;
  if (needs_squares) {
    for (int b = 0; b < sync.buckets(); ++b) optimizer.add_squares(on, b, sync.wait(b).gradients);
  }
  if (state_.loss_scaler) {
    const std::span<const double> squares = optimizer.squares();
    state_.loss_scaler->decide(on, squares.data(), static_cast<int64_t>(squares.size()),
                               state_.loss_scale.as<LossScale>(), states_.device());
  }
  if (optimizer.needs_norm()) optimizer.clip(on, states_.device());
  for (int b = 0; b < sync.buckets(); ++b) {
    // Where nothing is asked of all gradients, the later buckets are still travelling.
    const BucketSpan bucket = needs_squares ? sync.bucket(b) : sync.wait(b);
    optimizer.update(on, b, bucket.weights, bucket.gradients);
  }
  state_.network.constrain(on);
}

void FitRun::send_results() {
  const std::span<const float> tail = state_.sync->tail();
  std::array<ReadBack::Piece, 3> pieces{ReadBack::Piece{
      .data = tail.data(), .bytes = static_cast<int64_t>(tail.size_bytes()), .offset = StepResult::kTail}};
  size_t used = 1;
  if (state_.optimizer->needs_norm()) {
    pieces[used++] = {.data = state_.optimizer->norm(), .bytes = sizeof(double), .offset = StepResult::kNorm};
  }
  if (state_.loss_scaler) {
    pieces[used++] = {
        .data = state_.loss_scale.data(), .bytes = sizeof(LossScale), .offset = StepResult::kScale};
  }
  results_.send(*state_.stream, std::span(pieces).first(used));
}

void FitRun::report_oldest() {
  at_step_ = reported_;
  {
    const Timed timed(busy_seconds_);
    const Queued& oldest = queue_[static_cast<size_t>(queued_ - results_.underway()) % queue_.size()];
    read_results();
    report_.learning_rate = oldest.learning_rate;
    count(oldest.share);
  }
  callbacks_.step_end(report_);
}

void FitRun::read_results() {
  const std::byte* result = results_.receive();
  const auto* tail = reinterpret_cast<const float*>(result + StepResult::kTail);
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] = static_cast<double>(tail[i]);
  if (tail[sums_.size()] > 0.0f) stopping_ = true;
  report_.gradient_norm =
      state_.optimizer->needs_norm() ? *reinterpret_cast<const double*>(result + StepResult::kNorm) : 0.0;
  if (state_.loss_scaler) read_scale(*reinterpret_cast<const LossScale*>(result + StepResult::kScale));
}

void FitRun::read_scale(const LossScale& after) {
  report_.loss_scale = static_cast<double>(state_.known_scale.scale);
  report_.skipped = after.skipped > state_.known_scale.skipped;
  state_.known_scale = after;
  if (!report_.skipped) return;
  ++skipped_;
  if (report_.loss_scale > 1.0 || !overflow_.empty()) return;
  stopping_ = true;
  overflow_ = where() +
              "gradients are not finite even with a loss scale of 1, so that no weight can change. Lower the "
              "learning rate, look for NaN and extreme values in the data, or train in bf16";
}

void FitRun::count(const Share& share) {
  ++steps_done_;
  samples_ += share.global_rows;
  epoch_samples_ += share.global_rows;
  const bool finite = std::all_of(sums_.begin(), sums_.end(), [](double sum) { return std::isfinite(sum); });
  const bool counts = finite || !report_.skipped;  // an overflow that cost nothing but the step
  if (counts) epoch_counted_ += share.global_rows;
  // Keras' mean over batches, each times its rows, also of losses that are sums.
  for (size_t i = 0; state_.network.sums_loss() && i < state_.network.loss_count(); ++i) {
    sums_[i] *= static_cast<double>(share.global_rows);
  }
  for (size_t i = 0; counts && i < sums_.size(); ++i) epoch_sums_[i] += sums_[i];
  state_.network.values_of(sums_, static_cast<double>(share.global_rows), means_);
  state_.network.values_of(epoch_sums_, static_cast<double>(epoch_counted_), epoch_means_);
  report_.epoch = epoch_;
  report_.step = reported_++;
  report_.samples = share.global_rows;
  report_.loss = means_[0];
  report_.metrics = std::span(means_).subspan(1);
  report_.epoch_loss = epoch_means_[0];
  report_.epoch_metrics = std::span(epoch_means_).subspan(1);
  report_.epoch_samples = epoch_samples_;
  report_.epoch_seconds = epoch_watch_.seconds();
}

}  // namespace rondo
