#include "runtime/train/batch_stream.h"

#include <algorithm>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/data/source.h"
#include "runtime/device/allocate_for.h"

namespace rondo {

namespace {

// The caller keeps the source alive; the loader wants shared ownership.
std::shared_ptr<const Source> borrowed(const Source& source) {
  return {std::shared_ptr<void>(), &source};
}

LoaderOptions loader_options(int workers, Device& device) {
  if (device.host_accessible()) return {.workers = workers};
  return {.workers = workers, .slots = 4, .keep = 1, .allocate = [&device](int64_t bytes) {
            return device.allocate_host(bytes);
          }};
}

}  // namespace

BatchStream::BatchStream(const Source& source, const SamplerOptions& options, int workers, Device& device)
    : loader_(borrowed(source), Sampler(options), loader_options(workers, device)) {
  current_.batch.inputs.resize(1);
  if (device.host_accessible()) return;
  const int64_t rows = std::max<int64_t>(loader_.sampler().max_rows(), 1);
  for (Place& place : places_) {
    place.input = allocate_for(device, rows * source.input_elements() * dtype_size(DType::kF32),
                               fmt::format("{} rows of input", rows));
    place.labels = device.allocate(rows * source.label_bytes());
    if (source.weighted()) place.weights = device.allocate(rows * dtype_size(DType::kF32));
    place.uploaded = device.make_event();
    place.used = device.make_event();
  }
  upload_ = device.make_stream();
}

BatchStream::~BatchStream() {
  if (!uploads()) return;
  try {
    upload_->synchronize();
  } catch (const std::exception&) {
    // A failed device copies nothing any more, and whoever waits for it is told.
  }
}

void BatchStream::seek(int64_t batch) {
  pass_ = batch / batches_per_pass();
  const int64_t first = batch % batches_per_pass();
  left_ = batches_per_pass() - first;
  if (uploads()) upload_->synchronize();  // start() gives all slots back
  loader_.start(pass_, first);
}

void BatchStream::read_ahead() {
  if (left_ == 0) seek((pass_ + 1) * batches_per_pass());
}

const DeviceBatch& BatchStream::next(Stream& compute) {
  const Timed timed(wait_seconds_);
  read_ahead();
  --left_;
  // The loader takes back the slot of the batch before the last one, which had the place of this one.
  if (uploads()) places_[static_cast<size_t>(given_ % 2)].uploaded->synchronize();
  const LoadedBatch* loaded = loader_.next();
  RONDO_CHECK(loaded != nullptr);
  current_.share = loaded->share;
  current_.batch.rows = loaded->share.rows;
  current_.batch.inputs[0] = loaded->input;
  current_.batch.label = loaded->labels;
  current_.batch.weights = loaded->weights;
  if (uploads()) upload(*loaded, compute);
  ++given_;
  return current_;
}

void BatchStream::upload(const LoadedBatch& loaded, Stream& compute) {
  Place& place = places_[static_cast<size_t>(given_ % 2)];
  upload_->wait(*place.used);
  if (loaded.share.rows > 0) {
    upload_->copy(place.input.data(), loaded.input.data, loaded.input.bytes());
    upload_->copy(place.labels.data(), loaded.labels.data, loaded.labels.bytes());
    if (loaded.weights) upload_->copy(place.weights.data(), loaded.weights.data, loaded.weights.bytes());
  }
  upload_->record(*place.uploaded);
  compute.wait(*place.uploaded);
  current_.batch.inputs[0].data = place.input.data();
  current_.batch.label.data = place.labels.data();
  current_.batch.weights.data = place.weights.data();
}

void BatchStream::done(Stream& compute) {
  if (uploads()) compute.record(*places_[static_cast<size_t>((given_ + 1) % 2)].used);
}

}  // namespace rondo
