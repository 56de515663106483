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
  const std::vector<SampleField> inputs = source.inputs(), labels = source.labels();
  current_.batch.inputs.resize(inputs.size());
  current_.batch.labels.resize(labels.size());
  current_.batch.weights.resize(labels.size());
  if (device.host_accessible()) return;
  const int64_t rows = std::max<int64_t>(loader_.sampler().max_rows(), 1);
  for (Place& place : places_) {
    for (const SampleField& input : inputs) {
      place.inputs.push_back(
          allocate_for(device, rows * input.bytes(), fmt::format("{} rows of input", rows)));
    }
    for (const SampleField& label : labels) {
      place.labels.push_back(device.allocate(rows * label.bytes()));
      const int64_t weights = label.weights ? label.weights->elements() * dtype_size(DType::kF32) : 0;
      place.weights.push_back(weights > 0 ? device.allocate(rows * weights) : Buffer());
    }
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
  std::copy(loaded->inputs.begin(), loaded->inputs.end(), current_.batch.inputs.begin());
  std::copy(loaded->labels.begin(), loaded->labels.end(), current_.batch.labels.begin());
  std::copy(loaded->weights.begin(), loaded->weights.end(), current_.batch.weights.begin());
  if (uploads()) upload(compute);
  ++given_;
  return current_;
}

void BatchStream::upload(Stream& compute) {
  Place& place = places_[static_cast<size_t>(given_ % 2)];
  upload_->wait(*place.used);
  upload_all(current_.batch.inputs, place.inputs);
  upload_all(current_.batch.labels, place.labels);
  upload_all(current_.batch.weights, place.weights);
  upload_->record(*place.uploaded);
  compute.wait(*place.uploaded);
}

// Tensors of the host become those of the device that hold the same.
void BatchStream::upload_all(std::vector<Tensor>& tensors, const std::vector<Buffer>& buffers) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) continue;
    if (current_.batch.rows > 0) upload_->copy(buffers[i].data(), tensors[i].data, tensors[i].bytes());
    tensors[i].data = buffers[i].data();
  }
}

void BatchStream::done(Stream& compute) {
  if (uploads()) compute.record(*places_[static_cast<size_t>((given_ + 1) % 2)].used);
}

}  // namespace rondo
