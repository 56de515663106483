#include "runtime/train/batch_stream.h"

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/data/source.h"

namespace rondo {

namespace {

// The caller keeps the source alive; the loader wants shared ownership.
std::shared_ptr<const Source> borrowed(const Source& source) {
  return {std::shared_ptr<void>(), &source};
}

}  // namespace

BatchStream::BatchStream(const Source& source, const SamplerOptions& options, int workers)
    : loader_(borrowed(source), Sampler(options), {.workers = workers}) {}

void BatchStream::seek(int64_t batch) {
  pass_ = batch / batches_per_pass();
  const int64_t first = batch % batches_per_pass();
  left_ = batches_per_pass() - first;
  loader_.start(pass_, first);
}

void BatchStream::read_ahead() {
  if (left_ == 0) seek((pass_ + 1) * batches_per_pass());
}

const LoadedBatch& BatchStream::next() {
  const Timed timed(wait_seconds_);
  read_ahead();
  --left_;
  const LoadedBatch* batch = loader_.next();
  RONDO_CHECK(batch != nullptr);
  return *batch;
}

}  // namespace rondo
