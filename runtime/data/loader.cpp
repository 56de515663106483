#include "runtime/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/source.h"

namespace rondo {
namespace {

constexpr std::align_val_t kAlignment{64};

Buffer allocate_host(int64_t bytes) {
  void* memory = ::operator new(static_cast<size_t>(bytes), kAlignment);
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return {memory, bytes, {memory, [](void* p) { ::operator delete(p, kAlignment); }}};
}

// Rethrows the exception in flight with `where` in front of its text, as the same type if it is one of
// error.h.
[[noreturn]] void rethrow_with(const std::string& where) {
  try {
    throw;
  } catch (const FileError& e) {
    throw FileError(where + e.what());
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(where + e.what());
  } catch (const NumericError& e) {
    throw NumericError(where + e.what());
  } catch (const Unavailable& e) {
    throw Unavailable(where + e.what());
  } catch (const InternalError& e) {
    throw InternalError(where + e.what());
  } catch (const std::exception& e) {
    throw Error(where + e.what());
  } catch (...) {
    throw Error(where + "unknown exception");
  }
}

}  // namespace

// A run is what one start() asked for: `steps_` batches numbered from 0. Batch k lives in slot k % slots.
// Under the mutex, taken_ >= given_ >= freed_ count the batches that a reader has taken up, that next() has
// handed out, and whose slots are free again; batch k may be read once k < freed_ + slots.
class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Source> source, Sampler sampler, const LoaderOptions& options);
  ~Impl();

  const Source& source() const { return *source_; }
  const Sampler& sampler() const { return sampler_; }
  void start(int64_t epoch, int64_t first_step, int64_t steps);
  const LoadedBatch* next();
  void release() { free_down_to(0); }
  void stop();
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Slot {
    LoadedBatch batch;
    std::vector<Buffer> memory;
    // Of the row being read.
    std::vector<std::span<float>> inputs;
    std::vector<std::span<std::byte>> labels;
    std::vector<std::span<float>> weights;
    bool weighted = false;
    std::exception_ptr error;
    bool filled = false;
  };

  void make_slots(const LoaderOptions& options);
  void stop_workers();
  void free_down_to(int64_t held);
  Slot& slot(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }
  bool can_take() const { return taken_ < steps_ && taken_ < freed_ + static_cast<int64_t>(slots_.size()); }
  void work();
  void fill(Slot& slot, int64_t number);
  void read_rows(Slot& slot);

  const std::shared_ptr<const Source> source_;
  Sampler sampler_;  // changed only between runs, when no reader is active
  std::vector<Slot> slots_;
  double wait_seconds_ = 0.0;
  const int keep_;
  bool failed_ = false;

  std::mutex mutex_;
  std::condition_variable can_read_;  // for workers
  std::condition_variable progress_;  // for the caller: a slot was filled, or a worker stopped reading
  int64_t first_step_ = 0;
  int64_t steps_ = 0;
  int64_t taken_ = 0;
  int64_t given_ = 0;
  int64_t freed_ = 0;
  int active_ = 0;  // workers inside fill()
  bool ending_ = false;
  std::atomic<bool> cancel_{false};  // tells readers to leave their batch unfinished
  std::vector<std::thread> workers_;
};

Loader::Impl::Impl(std::shared_ptr<const Source> source, Sampler sampler, const LoaderOptions& options)
    : source_(std::move(source)), sampler_(std::move(sampler)), keep_(options.keep) {
  require(sampler_.options().size == source_->size(), "the sampler draws from {} samples, but {} has {}",
          sampler_.options().size, source_->name(), source_->size());
  require(options.workers >= 0 && options.workers <= 1024, "{} loader workers; give 0 to 1024",
          options.workers);
  require(options.keep >= 0, "{} batches cannot be kept", options.keep);
  const int least = options.keep + (options.workers > 0 ? 2 : 1);
  require(options.slots >= least, "{} loader slots; give at least {}", options.slots, least);
  make_slots(options);
  workers_.reserve(static_cast<size_t>(options.workers));
  try {
    for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& e) {
    stop_workers();
    raise<Error>("cannot start loader worker {} of {}: {}; use fewer workers", workers_.size() + 1,
                 options.workers, e.what());
  }
}

Loader::Impl::~Impl() {
  stop_workers();
}

void Loader::Impl::stop_workers() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    cancel_ = true;
  }
  can_read_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Loader::Impl::make_slots(const LoaderOptions& options) {
  const auto allocate = options.allocate ? options.allocate : allocate_host;
  const int64_t rows = std::max<int64_t>(sampler_.max_rows(), 1);
  const std::vector<SampleField> inputs = source_->inputs(), labels = source_->labels();
  slots_.resize(static_cast<size_t>(options.slots));
  for (Slot& s : slots_) {
    const auto make = [&](const Shape& shape, DType dtype) -> Tensor {
      const TensorDesc desc{.shape = shape.batched(rows), .dtype = dtype};
      s.memory.push_back(allocate(desc.bytes()));
      return {.desc = desc, .data = s.memory.back().data()};
    };
    for (const SampleField& input : inputs) s.batch.inputs.push_back(make(input.shape, DType::kF32));
    for (const SampleField& label : labels) s.batch.labels.push_back(make(label.shape, label.dtype));
    for (const SampleField& label : labels) {
      s.batch.weights.push_back(label.weights ? make(*label.weights, DType::kF32) : Tensor{});
      s.weighted = s.weighted || label.weights.has_value();
    }
    s.inputs.resize(inputs.size());
    s.labels.resize(labels.size());
    s.weights.resize(labels.size());
  }
}

void Loader::Impl::start(int64_t epoch, int64_t first_step, int64_t steps) {
  const int64_t in_epoch = sampler_.steps();
  if (steps < 0) steps = in_epoch - first_step;
  require(first_step >= 0 && steps >= 0 && first_step <= in_epoch && steps <= in_epoch - first_step,
          "steps {} to {} were asked for; the epoch has {} steps", first_step, first_step + steps - 1,
          in_epoch);
  stop();
  sampler_.set_epoch(epoch);
  {
    std::lock_guard lock(mutex_);
    first_step_ = first_step;
    steps_ = steps;
    cancel_ = false;
  }
  can_read_.notify_all();
}

void Loader::Impl::stop() {
  std::unique_lock lock(mutex_);
  cancel_ = true;
  steps_ = 0;
  progress_.wait(lock, [this] { return active_ == 0; });
  taken_ = given_ = freed_ = 0;
  for (Slot& s : slots_) {
    s.filled = false;
    s.error = nullptr;
  }
  failed_ = false;
}

const LoadedBatch* Loader::Impl::next() {
  free_down_to(keep_);
  require(!failed_, "this loader failed before; call start() to go on");
  if (given_ == steps_) return nullptr;
  const auto begin = std::chrono::steady_clock::now();
  Slot& s = slot(given_);
  if (workers_.empty()) {
    fill(s, given_);
  } else {
    std::unique_lock lock(mutex_);
    progress_.wait(lock, [&s] { return s.filled; });
  }
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (s.error) {
    const std::exception_ptr error = s.error;
    stop();
    failed_ = true;
    std::rethrow_exception(error);
  }
  ++given_;
  return &s.batch;
}

// Batches freed_ to given_ - 1 are the caller's.
void Loader::Impl::free_down_to(int64_t held) {
  if (given_ - freed_ <= held) return;
  {
    std::lock_guard lock(mutex_);
    for (; given_ - freed_ > held; ++freed_) slot(freed_).filled = false;
  }
  held == keep_ ? can_read_.notify_one() : can_read_.notify_all();
}

void Loader::Impl::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    can_read_.wait(lock, [this] { return ending_ || can_take(); });
    if (ending_) return;
    const int64_t number = taken_++;
    Slot& s = slot(number);
    ++active_;
    lock.unlock();
    fill(s, number);
    lock.lock();
    --active_;
    s.filled = true;
    progress_.notify_one();
  }
}

void Loader::Impl::fill(Slot& s, int64_t number) {
  LoadedBatch& batch = s.batch;
  batch.epoch = sampler_.epoch();
  batch.step = first_step_ + number;
  batch.share = sampler_.share(batch.step);
  batch.indices = sampler_.indices(batch.step);
  for (auto* tensors : {&batch.inputs, &batch.labels, &batch.weights}) {
    for (Tensor& tensor : *tensors) {
      if (tensor) tensor.desc.shape = tensor.desc.shape.with_batch(batch.share.rows);
    }
  }
  try {
    read_rows(s);
  } catch (...) {
    s.error = std::current_exception();
  }
}

// Points each span at the first row of its tensor.
template <class T>
void point_at(const std::vector<Tensor>& tensors, std::vector<std::span<T>>& rows) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) continue;
    const TensorDesc& desc = tensors[i].desc;
    const int64_t bytes = desc.shape.sample().elements() * dtype_size(desc.dtype);
    rows[i] = {tensors[i].as<T>(), static_cast<size_t>(bytes) / sizeof(T)};
  }
}
// ... at the next one.
template <class T>
void step(std::vector<std::span<T>>& rows) {
  for (std::span<T>& row : rows) row = {row.data() + row.size(), row.size()};
}

void Loader::Impl::read_rows(Slot& s) {
  point_at(s.batch.inputs, s.inputs);
  point_at(s.batch.labels, s.labels);
  point_at(s.batch.weights, s.weights);
  const SamplePlace place{.inputs = s.inputs, .labels = s.labels, .weights = s.weights};
  for (const int64_t index : s.batch.indices) {
    if (cancel_.load(std::memory_order_relaxed)) return;
    try {
      source_->read_all(index, place);
      if (s.weighted) source_->read_weights(index, place);
    } catch (...) {
      rethrow_with(fmt::format("reading sample {} of {} for step {} of epoch {}: ", index, source_->name(),
                               s.batch.step, s.batch.epoch));
    }
    step(s.inputs);
    step(s.labels);
    step(s.weights);
  }
}

Loader::Loader(std::shared_ptr<const Source> source, Sampler sampler, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(sampler), options)) {}

Loader::~Loader() = default;

const Source& Loader::source() const {
  return impl_->source();
}
const Sampler& Loader::sampler() const {
  return impl_->sampler();
}
void Loader::start(int64_t epoch, int64_t first_step, int64_t steps) {
  impl_->start(epoch, first_step, steps);
}
const LoadedBatch* Loader::next() {
  return impl_->next();
}
void Loader::release() {
  impl_->release();
}
void Loader::stop() {
  impl_->stop();
}
double Loader::wait_seconds() const {
  return impl_->wait_seconds();
}

}  // namespace rondo
