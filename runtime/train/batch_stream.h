#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/device/device.h"
#include "runtime/train/network.h"

namespace rondo {

// One rank's rows of a step, where the device's kernels can read them.
struct DeviceBatch {
  Share share;
  Batch batch;
};

// One rank's sub-batches of an endless series of passes over a source, each pass in its own order. Batches
// are numbered over all passes.
//
// Hosts use the rows where the loader put them. For other devices the loader's memory is pinned, and a stream
// of its own uploads each batch into one of two places on the device, while work on the batch before still
// runs: an upload waits for the work on the batch that had the place, and the work for the upload. The host
// waits for an upload only when the loader needs its slot, a batch later.
class BatchStream {
 public:
  // Throws OutOfMemory where the device has no place for two batches.
  BatchStream(const Source& source, const SamplerOptions& options, int workers, Device& device);
  ~BatchStream();

  // The next batch is number `batch`.
  void seek(int64_t batch);
  // The next batch, for work queued on `compute` between this call and done(). The reference is valid until
  // the next call of any function.
  const DeviceBatch& next(Stream& compute);
  void done(Stream& compute);
  // Begins to read the next pass if the current one was given out: for pauses between batches.
  void read_ahead();

  int64_t batches_per_pass() const { return loader_.sampler().steps(); }
  double wait_seconds() const { return wait_seconds_; }  // spent in next()

 private:
  struct Place {
    std::vector<Buffer> inputs, labels, weights;  // as in a Batch
    std::unique_ptr<Event> uploaded;
    std::unique_ptr<Event> used;
  };
  bool uploads() const { return upload_ != nullptr; }
  void upload(Stream& compute);
  void upload_all(std::vector<Tensor>& tensors, const std::vector<Buffer>& buffers);

  Loader loader_;
  std::unique_ptr<Stream> upload_;  // none on hosts
  std::array<Place, 2> places_;
  int64_t given_ = 0;
  DeviceBatch current_;
  int64_t pass_ = -1;
  int64_t left_ = 0;  // batches of the pass not given out yet
  double wait_seconds_ = 0.0;
};

}  // namespace rondo
