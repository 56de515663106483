// The life of a training batch.
#include <algorithm>
#include <array>

#include "runtime/kernels/step.h"
#include "runtime/train/fit_run.h"

namespace rondo {

void FitRun::queue_step() {
  Stream& stream = *state_.stream;
  GradSync& sync = *state_.sync;
  const DeviceBatch& input = input_.next(stream);
  const std::span<double> sums(device_sums_.as<double>(), names_.size());
  const bool has_rows = input.share.rows > 0;  // a small batch may leave nothing for this rank

  begin_step(input.share);
  const Execution on{.stream = stream, .state = states_.device()};
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
  input_.done(stream);
  update_weights(on);
  send_results();

  state_.statistics->saw(input.share.rows, input.share.global_rows);
  ++state_.steps_done;
}

void FitRun::begin_step(const Share& share) {
  step_state_.seed = options_.seed;
  step_state_.step = state_.steps_done;
  step_state_.first_row = share.first_row;
  step_state_.inverse_batch = 1.0f / static_cast<float>(share.global_rows);
  step_state_.vote = callbacks_.wants_stop() ? 1.0f : 0.0f;
  state_.optimizer->begin_step(step_state_);
  states_.send(*state_.stream, step_state_);
  queue_[static_cast<size_t>(queued_++) % queue_.size()] = {
      .share = share, .learning_rate = static_cast<double>(step_state_.learning_rate)};
}

void FitRun::update_weights(const Execution& on) {
  GradSync& sync = *state_.sync;
  Optimizer& optimizer = *state_.optimizer;
  if (optimizer.needs_norm()) {
    for (int b = 0; b < sync.buckets(); ++b) optimizer.add_squares(on, b, sync.wait(b).gradients);
    optimizer.clip(on, states_.device());
  }
  for (int b = 0; b < sync.buckets(); ++b) {
    // Without a norm the later buckets are still travelling.
    const BucketSpan bucket = optimizer.needs_norm() ? sync.bucket(b) : sync.wait(b);
    optimizer.update(on, b, bucket.weights, bucket.gradients);
  }
}

void FitRun::send_results() {
  const std::span<const float> tail = state_.sync->tail();
  const std::array<ReadBack::Piece, 2> pieces{
      ReadBack::Piece{
          .data = tail.data(), .bytes = static_cast<int64_t>(tail.size_bytes()), .offset = sizeof(double)},
      ReadBack::Piece{.data = state_.optimizer->norm(), .bytes = sizeof(double)}};
  const size_t used = state_.optimizer->needs_norm() ? 2 : 1;
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
  const auto* tail = reinterpret_cast<const float*>(result + sizeof(double));
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] = static_cast<double>(tail[i]);
  if (tail[sums_.size()] > 0.0f) stopping_ = true;
  report_.gradient_norm = state_.optimizer->needs_norm() ? *reinterpret_cast<const double*>(result) : 0.0;
}

void FitRun::count(const Share& share) {
  ++steps_done_;
  samples_ += share.global_rows;
  epoch_samples_ += share.global_rows;
  for (size_t i = 0; i < sums_.size(); ++i) {
    epoch_sums_[i] += sums_[i];
    means_[i] = sums_[i] / static_cast<double>(share.global_rows);
    epoch_means_[i] = epoch_sums_[i] / static_cast<double>(epoch_samples_);
  }
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
