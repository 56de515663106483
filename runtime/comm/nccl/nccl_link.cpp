#include "runtime/comm/nccl/nccl_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/nccl/nccl_check.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_device.h"

namespace rondo::nccl {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{100};
constexpr std::chrono::seconds kCallDeadline{120};  // of NCCL taking a call: the first connect
constexpr std::chrono::seconds kEndDeadline{10};    // of ending in order

std::string seconds_text(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? fmt::format("{} s", time.count() / 1000)
                                  : fmt::format("{} ms", time.count());
}

}  // namespace

std::string failure_text(ncclResult_t result, const char* call, ncclComm_t comm) {
  const char* said = ncclGetLastError(comm);
  const bool says = said != nullptr && said[0] != '\0';
  return fmt::format("{} failed: {}{}{}", call, ncclGetErrorString(result), says ? "; NCCL says: " : "",
                     says ? said : "");
}

// A GPU that hangs never lets go: then the aborting thread is left to itself.
void Link::Shared::await_abort(std::unique_lock<std::mutex>& lock) {
  aborted.wait_for(lock, kEndDeadline, [this] { return !aborting; });
}

// Memory that stays registered until it is freed or the communicator ends.
struct Link::Memory {
  std::shared_ptr<Shared> shared;
  int device = 0;
  void* data = nullptr;
  void* registration = nullptr;

  Memory(std::shared_ptr<Shared> of, int index) : shared(std::move(of)), device(index) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (data == nullptr || cudaSetDevice(device) != cudaSuccess) return;
    std::unique_lock lock(shared->mutex);
    shared->await_abort(lock);  // kernels may still be on it
    if (registration != nullptr && shared->comm != nullptr) ncclCommDeregister(shared->comm, registration);
    ncclMemFree(data);
  }
};

Link::Link(const ncclUniqueId& id, Device& device, const LinkOptions& options)
    : device_(device), device_index_(cuda::index_of(device)), own_name_(options.own_name) {
  RONDO_CHECK_CUDA(cudaSetDevice(device_index_));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::unique_lock lock(shared_->mutex);
  ncclResult_t result = ncclCommInitRankConfig(&shared_->comm, options.size, id, options.rank, &config);
  result = settle(lock, result, Clock::now() + options.connect_deadline);
  if (result == ncclSuccess) {
    lock.unlock();
    watchdog_ = std::thread([this] { watch(); });
    return;
  }
  const std::string reason =
      result == ncclInProgress
          ? fmt::format(
                "NCCL did not connect the GPUs of {} ranks within {}; check that all ranks reach each "
                "other over the interface of NCCL_SOCKET_IFNAME (NCCL_DEBUG=INFO tells which it took)",
                options.size, seconds_text(options.connect_deadline))
          : failure_text(result, "ncclCommInitRankConfig", shared_->comm);
  fail_locked(reason);
  shared_->await_abort(lock);
  throw PeerError(failure_);
}

Link::~Link() {
  {
    const std::lock_guard lock(shared_->mutex);
    stop_ = true;
  }
  stopped_.notify_all();
  watchdog_.join();
  end_in_order();
}

void Link::end_in_order() {
  cudaSetDevice(device_index_);
  const auto deadline = Clock::now() + kEndDeadline;
  std::vector<std::shared_ptr<Memory>> alive;  // let go without the lock, which it may need
  for (const auto& memory : memory_) {
    if (auto still = memory.lock()) alive.push_back(std::move(still));
  }
  std::unique_lock lock(shared_->mutex);
  try {
    while (shared_->comm != nullptr && !in_flight_.empty() && !in_flight_.back()->done->happened()) {
      if (Clock::now() > deadline) {
        fail_locked("the communicator was ended while a collective was on its way");
        break;
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      lock.lock();
    }
    if (!failure_.empty()) return shared_->await_abort(lock);
    for (const auto& memory : alive) {
      if (shared_->comm == nullptr || memory->registration == nullptr) continue;
      ncclCommDeregister(shared_->comm, std::exchange(memory->registration, nullptr));
    }
    if (shared_->comm == nullptr) return;
    if (settle(lock, ncclCommFinalize(shared_->comm), deadline) == ncclSuccess) {
      ncclCommDestroy(std::exchange(shared_->comm, nullptr));
      return;
    }
  } catch (const std::exception&) {
    // A device that failed: what is left is to let go.
  }
  abort_locked();
  shared_->await_abort(lock);
}

// Waits until NCCL has done what it began; ncclInProgress when the deadline passed. Releases the lock
// meanwhile.
ncclResult_t Link::settle(std::unique_lock<std::mutex>& lock, ncclResult_t result,
                          Clock::time_point deadline) {
  std::chrono::microseconds pause{10};
  while (result == ncclInProgress) {
    if (shared_->comm == nullptr) return ncclRemoteError;  // failed meanwhile
    ncclResult_t state = ncclSuccess;
    result = ncclCommGetAsyncError(shared_->comm, &state);
    if (result != ncclSuccess) return result;
    result = state;
    if (result != ncclInProgress || Clock::now() > deadline) return result;
    lock.unlock();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
    lock.lock();
  }
  return result;
}

void Link::check() {
  const std::lock_guard lock(shared_->mutex);
  if (!failure_.empty()) throw PeerError(failure_);
}

void Link::run(const char* name, const std::function<ncclResult_t(ncclComm_t)>& call) {
  RONDO_CHECK_CUDA(cudaSetDevice(device_index_));
  std::unique_lock lock(shared_->mutex);
  if (!failure_.empty()) throw PeerError(failure_);
  const ncclResult_t result = settle(lock, call(shared_->comm), Clock::now() + kCallDeadline);
  if (result == ncclSuccess) return;
  fail_locked(result == ncclInProgress
                  ? fmt::format("{} was not taken by NCCL within {}", name, seconds_text(kCallDeadline))
                  : failure_text(result, name, shared_->comm));
  throw PeerError(failure_);
}

void Link::launch(const std::function<void()>& launch) {
  const std::lock_guard lock(shared_->mutex);  // no abort in between
  if (!failure_.empty()) throw PeerError(failure_);
  launch();
}

Flight& Link::take(bool captured) {
  const std::lock_guard lock(shared_->mutex);
  if (!captured) retire_locked();  // events may not be asked while the thread captures
  if (idle_.empty()) {
    flights_.push_back(std::make_unique<Flight>());
    flights_.back()->done = device_.make_event();
    idle_.push_back(flights_.back().get());
    idle_.reserve(flights_.size());
    in_flight_.reserve(flights_.size());
  }
  Flight& flight = *idle_.back();
  idle_.pop_back();
  flight.held = true;
  flight.mismatch.clear();
  return flight;
}

void Link::launched(Flight& flight) {
  const std::lock_guard lock(shared_->mutex);
  flight.flying = true;
  in_flight_.push_back(&flight);
}

void Link::let_go(Flight& flight) {
  const std::lock_guard lock(shared_->mutex);
  flight.held = false;
  if (!flight.flying) idle_.push_back(&flight);
}

// Flights end in their order.
void Link::retire_locked() {
  size_t over = 0;
  for (; over < in_flight_.size() && in_flight_[over]->done->happened(); ++over) {
    Flight& flight = *in_flight_[over];
    flight.flying = false;
    if (!flight.held) idle_.push_back(&flight);
  }
  in_flight_.erase(in_flight_.begin(), in_flight_.begin() + static_cast<std::ptrdiff_t>(over));
}

bool Link::done(Flight& flight) {
  const std::lock_guard lock(shared_->mutex);
  const bool over = flight.done->happened();
  if (!failure_.empty()) throw PeerError(failure_);
  return over;
}

bool Link::done_in_time(Flight& flight) {
  const std::lock_guard lock(shared_->mutex);
  const bool over = flight.done->happened();
  if (failure_.empty() && !over && Clock::now() > flight.deadline) fail_locked(overdue(flight));
  if (!failure_.empty()) throw PeerError(failure_);
  return over;
}

std::string Link::overdue(const Flight& flight) const {
  return fmt::format("{} was not done within {}: another rank has not called it, or its GPU hangs",
                     describe(flight.call), seconds_text(flight.limit));
}

Buffer Link::allocate(int64_t bytes, Stream& stream) {
  check();
  RONDO_CHECK_CUDA(cudaSetDevice(device_index_));
  auto memory = std::make_shared<Memory>(shared_, device_index_);
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 64));
  if (ncclMemAlloc(&memory->data, size) != ncclSuccess) {
    memory->data = nullptr;
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    raise<OutOfMemory>(
        "{}: NCCL found no memory for gradients: {} MiB were wanted, {} MiB of {} MiB are free; use a "
        "smaller "
        "batch or model",
        device_.name(), bytes >> 20, free >> 20, total >> 20);
  }
  stream.fill_zero(memory->data, static_cast<int64_t>(size));
  stream.synchronize();
  run("ncclCommRegister",
      [&](ncclComm_t comm) { return ncclCommRegister(comm, memory->data, size, &memory->registration); });
  {
    const std::lock_guard lock(shared_->mutex);
    std::erase_if(memory_, [](const auto& old) { return old.expired(); });
    memory_.push_back(memory);
  }
  void* data = memory->data;
  return Buffer(data, bytes, std::move(memory));
}

void Link::fail(const std::string& reason) noexcept {
  const std::lock_guard lock(shared_->mutex);
  fail_locked(reason);
}

void Link::fail_locked(const std::string& reason) noexcept {
  if (failure_.empty()) failure_ = fmt::format("{}: {}", own_name_, reason);
  abort_locked();
}

// NCCL first ends its kernels, then waits for captured work to go: nobody may be kept waiting for that.
void Link::abort_locked() noexcept {
  ncclComm_t comm = std::exchange(shared_->comm, nullptr);
  if (comm == nullptr) return;
  shared_->aborting = true;
  try {
    std::thread([shared = shared_, comm, device = device_index_] {
      cudaSetDevice(device);
      ncclCommAbort(comm);
      const std::lock_guard lock(shared->mutex);
      shared->aborting = false;
      shared->aborted.notify_all();
    }).detach();
  } catch (const std::exception&) {  // no thread to be had: the kernels stay, and end with the process
    shared_->aborting = false;
  }
}

void Link::watch() {
  cudaSetDevice(device_index_);
  std::unique_lock lock(shared_->mutex);
  while (!stopped_.wait_for(lock, kWatchInterval, [this] { return stop_; })) {
    if (shared_->comm == nullptr) continue;
    try {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(shared_->comm, &state);
      if (asked != ncclSuccess) state = asked;
      if (state != ncclSuccess && state != ncclInProgress) {
        fail_locked(failure_text(state, "a collective", shared_->comm));
        continue;
      }
      const auto late = std::find_if(in_flight_.begin(), in_flight_.end(),
                                     [](const Flight* flight) { return !flight->done->happened(); });
      if (late != in_flight_.end() && Clock::now() > (*late)->deadline) fail_locked(overdue(**late));
    } catch (const std::exception& error) {
      fail_locked(error.what());
    }
  }
}

}  // namespace rondo::nccl
