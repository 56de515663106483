// The life of a training batch.
#include <algorithm>
#include <cmath>

#include "runtime/kernels/kernel.h"
#include "runtime/train/fit_run.h"

namespace rondo {

void FitRun::step() {
  const LoadedBatch& loaded = input_.next();
  GradSync& sync = *state_.sync;
  const bool has_rows = loaded.share.rows > 0;  // a small batch may leave nothing for this rank

  assign(batch_, loaded);
  begin_step(loaded.share);
  if (has_rows) state_.network.forward(batch_, Mode::kTraining, step_state_, sums_);

  sync.begin();
  write_tail();
  if (has_rows) {
    state_.network.backward(sync);  // buckets are on their way as soon as they are full
  } else {
    sync.contribute_zeros();
  }
  update_weights();
  read_tail();
  finish_step(loaded.share);
}

void FitRun::begin_step(const Share& share) {
  step_state_.seed = options_.seed;
  step_state_.step = state_.steps_done;
  step_state_.first_row = share.first_row;
  step_state_.inverse_batch = 1.0f / static_cast<float>(share.global_rows);
  state_.optimizer->begin_step(step_state_);
  std::fill(sums_.begin(), sums_.end(), 0.0);
}

// Sums, not means: counts (of right answers) stay exact in float32.
void FitRun::write_tail() {
  const std::span<float> tail = state_.sync->tail();
  for (size_t i = 0; i < sums_.size(); ++i) tail[i] = static_cast<float>(sums_[i]);
  tail[sums_.size()] = callbacks_.wants_stop() ? 1.0f : 0.0f;
}

void FitRun::update_weights() {
  GradSync& sync = *state_.sync;
  Optimizer& optimizer = *state_.optimizer;
  const Execution on{.stream = *state_.stream, .state = &step_state_};
  report_.gradient_norm = 0.0;
  if (!optimizer.needs_norm()) {
    for (int b = 0; b < sync.buckets(); ++b) {
      const BucketSpan bucket = sync.wait(b);  // the later ones are still travelling
      optimizer.update(on, b, bucket.weights, bucket.gradients);
    }
    return;
  }
  double square_sum = 0.0;
  for (int b = 0; b < sync.buckets(); ++b) square_sum += optimizer.square_sum(on, sync.wait(b).gradients);
  step_state_.gradient_scale *= optimizer.clip_factor(square_sum);
  for (int b = 0; b < sync.buckets(); ++b) {
    const BucketSpan bucket = sync.bucket(b);
    optimizer.update(on, b, bucket.weights, bucket.gradients);
  }
  report_.gradient_norm = std::sqrt(square_sum);
}

void FitRun::read_tail() {
  const std::span<const float> tail = state_.sync->tail();
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] = static_cast<double>(tail[i]);
  stopping_ = tail[sums_.size()] > 0.0f;
}

void FitRun::finish_step(const Share& share) {
  state_.statistics->saw(share.rows, share.global_rows);
  ++state_.steps_done;
  ++steps_done_;
  samples_ += share.global_rows;
  epoch_samples_ += share.global_rows;
  for (size_t i = 0; i < sums_.size(); ++i) {
    epoch_sums_[i] += sums_[i];
    means_[i] = sums_[i] / static_cast<double>(share.global_rows);
    epoch_means_[i] = epoch_sums_[i] / static_cast<double>(epoch_samples_);
  }
  report_.epoch = epoch_;
  report_.step = step_;
  report_.samples = share.global_rows;
  report_.loss = means_[0];
  report_.metrics = std::span(means_).subspan(1);
  report_.epoch_loss = epoch_means_[0];
  report_.epoch_metrics = std::span(epoch_means_).subspan(1);
  report_.epoch_samples = epoch_samples_;
  report_.epoch_seconds = epoch_watch_.seconds();
  report_.learning_rate = static_cast<double>(step_state_.learning_rate);
}

}  // namespace rondo
