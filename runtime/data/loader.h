// Loader: reads a rank's share of each step ahead of the training loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/data/sampler.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace rondo {

class Source;

struct LoaderOptions {
  int workers = 1;  // threads that read ahead; 0: read in the thread that asks
  int slots = 3;    // batches in memory, those in use included; with workers at least one more, to read ahead
  int keep = 0;  // batches before the last one given that stay valid as well, while they are being uploaded
  // Host memory for the slots, e.g. pinned for uploads; empty: ordinary memory.
  std::function<Buffer(int64_t bytes)> allocate = {};
};

// One rank's sub-batch, in host memory that stays valid until next() has been called 1 + keep times, or until
// release(), start() or stop().
struct LoadedBatch {
  int64_t epoch = 0;
  int64_t step = 0;
  Share share;
  std::vector<Tensor> inputs;        // each (rows, shape...), float32, dense
  std::vector<Tensor> labels;        // each (rows, shape...), int32 or float32, dense
  std::vector<Tensor> weights;       // of each label: (rows, shape...), float32; empty: all 1
  std::span<const int64_t> indices;  // the source's index of each row
};

// Worker threads fill a fixed ring of slots in the order of the steps and sleep while it is full. Nothing is
// allocated after construction. A loader is used by one thread. Destroying it at any time stops the workers:
// they finish the sample they are reading.
class Loader {
 public:
  // Throws InvalidArgument when the sampler's size is not the source's, or for options out of range.
  Loader(std::shared_ptr<const Source> source, Sampler sampler, const LoaderOptions& options = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  const Source& source() const;
  const Sampler& sampler() const;

  // Begins to read steps first_step .. first_step + steps - 1 of an epoch; steps < 0: up to its end. What was
  // being read before is dropped. Throws InvalidArgument for steps that the epoch does not have.
  void start(int64_t epoch, int64_t first_step = 0, int64_t steps = -1);
  // The next sub-batch, or nullptr when all were given. An empty share is a batch of 0 rows. Frees the slots
  // of all previous batches but the last `keep`. Blocks until the batch is there. Throws what the source
  // threw while reading it, with the sample's index in the text and the type kept if it is one of error.h;
  // then only start() goes on.
  const LoadedBatch* next();
  // Frees the slots of all batches given.
  void release();
  // Drops what is being read; next() then returns nullptr until start().
  void stop();

  // Seconds that next() has blocked, or read without workers, since construction: what input cost the steps.
  double wait_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo
