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

void assign(Batch& batch, const LoadedBatch& loaded) {
  batch.rows = loaded.share.rows;
  batch.inputs.resize(1);
  batch.inputs[0] = loaded.input;
  batch.label = loaded.labels;
}

Evaluation::Evaluation(TrainerState& state, const Source& source, int64_t batch_size, int workers)
    : state_(state),
      source_(source),
      batches_(source, in_order(state.comm, source, batch_size), workers),
      sums_(1 + state.metric_count()),
      total_(sums_.size() + 1),
      means_(sums_.size()) {
  prepare_shares(state.network, in_order(state.comm, source, batch_size), Mode::kInference);
}

const std::vector<double>& Evaluation::run() {
  std::fill(total_.begin(), total_.end(), 0.0);
  batches_.seek(0);
  for (int64_t step = 0; step < batches_.batches_per_pass(); ++step) {
    assign(batch_, batches_.next());
    if (batch_.rows == 0) continue;
    state_.network.forward(batch_, Mode::kInference, StepState{}, sums_);
    for (size_t i = 0; i < sums_.size(); ++i) total_[i] += sums_[i];
    total_.back() += static_cast<double>(batch_.rows);
  }

  const Timed timed(state_.collective_seconds);
  const Span span = span_of(std::span(total_));
  state_.comm.all_reduce(span, span, ReduceOp::kSum, {.label = "evaluation"}).wait();
  const auto samples = static_cast<int64_t>(total_.back());
  if (samples != source_.size()) {
    raise<InternalError>("the ranks evaluated {} samples of {}, which has {}", samples, source_.name(),
                         source_.size());
  }
  for (size_t i = 0; i < means_.size(); ++i) means_[i] = total_[i] / total_.back();
  return means_;
}

}  // namespace rondo
