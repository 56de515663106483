#pragma once

#include <cstdint>

#include "runtime/data/loader.h"

namespace rondo {

// One rank's sub-batches of an endless series of passes over a source, each pass in its own order. Batches
// are numbered over all passes.
class BatchStream {
 public:
  BatchStream(const Source& source, const SamplerOptions& options, int workers);

  // The next batch is number `batch`.
  void seek(int64_t batch);
  // Valid until the next call of any function.
  const LoadedBatch& next();
  // Begins to read the next pass if the current one was given out: for pauses between batches.
  void read_ahead();

  int64_t batches_per_pass() const { return loader_.sampler().steps(); }
  double wait_seconds() const { return wait_seconds_; }  // spent in next()

 private:
  Loader loader_;
  int64_t pass_ = -1;
  int64_t left_ = 0;  // batches of the pass not given out yet
  double wait_seconds_ = 0.0;
};

}  // namespace rondo
