#include "runtime/train/evaluation.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/source.h"

namespace rondo {

void prepare_shares(Network& network, const SamplerOptions& options, Mode mode) {
  const int64_t full = std::min(options.batch, options.size);
  const int64_t rest = options.size % options.batch;
  for (const int64_t global_rows : {full, rest}) {
    const int64_t rows = share_of(global_rows, options.rank, options.world).rows;
    if (rows > 0) network.prepare(rows, mode);
  }
}

SamplerOptions in_order(const Communicator& comm, const Source& source, int64_t batch_size) {
  return {.size = source.size(),
          .batch = batch_size,
          .shuffle = false,
          .rank = comm.rank(),
          .world = comm.size()};
}

Evaluation::Evaluation(TrainerState& state, const Source& source, int64_t batch_size, int workers)
    : state_(state),
      source_(source),
      values_(state.network.sum_count()),
      batches_(source, in_order(state.comm, source, batch_size), workers, state.device()),
      sums_(state.device().allocate(static_cast<int64_t>(values_ * sizeof(double)))),
      results_(state.device(), sums_.bytes(), state.run_ahead() + 1),
      loss_factors_(static_cast<size_t>(state.run_ahead() + 1)),
      total_(values_ + 1),
      means_(1 + state.metric_count()),
      quiet_(*state.stream) {
  prepare_shares(state.network, in_order(state.comm, source, batch_size), Mode::kInference);
}

const std::vector<double>& Evaluation::run() {
  Stream& stream = *state_.stream;
  const Execution on{.stream = stream};
  const ReadBack::Piece sums[] = {{.data = sums_.data(), .bytes = sums_.bytes()}};
  std::fill(total_.begin(), total_.end(), 0.0);
  batches_.seek(0);
  for (int64_t step = 0; step < batches_.batches_per_pass(); ++step) {
    const DeviceBatch& input = batches_.next(stream);
    if (input.batch.rows > 0) {
      state_.network.forward(on, input.batch, Mode::kInference, {sums_.as<double>(), values_});
      results_.send(stream, sums);
      loss_factors_[static_cast<size_t>(sent_++) % loss_factors_.size()] =
          state_.network.sums_loss() ? static_cast<double>(input.share.global_rows) : 1.0;
      total_.back() += static_cast<double>(input.batch.rows);
    }
    batches_.done(stream);
    if (results_.underway() > state_.run_ahead()) add_oldest();
  }
  while (results_.underway() > 0) add_oldest();

  const Timed timed(state_.collective_seconds);
  const Span span = span_of(std::span(total_));
  state_.comm.host().all_reduce(span, span, ReduceOp::kSum, {.label = "evaluation"}).wait();
  const auto samples = static_cast<int64_t>(total_.back());
  if (samples != source_.size()) {
    raise<InternalError>("the ranks evaluated {} samples of {}, which has {}", samples, source_.name(),
                         source_.size());
  }
  state_.network.values_of(std::span(total_).first(values_), total_.back(), means_);
  return means_;
}

void Evaluation::add_oldest() {
  const auto* sums = reinterpret_cast<const double*>(results_.receive());
  const double factor = loss_factors_[static_cast<size_t>(added_++) % loss_factors_.size()];
  const size_t losses = state_.network.loss_count();
  for (size_t i = 0; i < values_; ++i) total_[i] += i < losses ? sums[i] * factor : sums[i];
}

}  // namespace rondo
