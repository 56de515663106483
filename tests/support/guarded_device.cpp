#include "tests/support/guarded_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace rondo::test {
namespace {

constexpr int64_t kAlignment = 256;  // as a GPU's allocator gives

// One recording of an event.
class Moment {
 public:
  bool happened() const {
    const std::lock_guard lock(mutex_);
    return happened_;
  }
  void wait_quietly() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
  }
  // Raises what the work before it failed with.
  void wait() {
    wait_quietly();
    if (!failure_.empty()) throw DeviceError(failure_);
  }
  void happen(const std::string& failure) {
    {
      const std::lock_guard lock(mutex_);
      happened_ = true;
      failure_ = failure;
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
  std::string failure_;
};

class GuardedEvent final : public Event {
 public:
  explicit GuardedEvent(GuardedDevice& device) : device_(device) {}
  bool happened() const override {
    const auto now = moment();
    return now == nullptr || now->happened();
  }
  void synchronize() override {
    const auto now = moment();
    if (now == nullptr) return;
    if (!now->happened()) {
      ++device_.counts().event_waits;
      ++device_.counts().waiting;
      now->wait_quietly();
      --device_.counts().waiting;
    }
    now->wait();
  }
  std::shared_ptr<Moment> moment() const {
    const std::lock_guard lock(mutex_);
    return moment_;
  }
  std::shared_ptr<Moment> record() {
    auto next = std::make_shared<Moment>();
    const std::lock_guard lock(mutex_);
    return moment_ = std::move(next);
  }

 private:
  GuardedDevice& device_;
  mutable std::mutex mutex_;
  std::shared_ptr<Moment> moment_;
};

class GuardedStream final : public Stream {
 public:
  explicit GuardedStream(GuardedDevice& device) : device_(device) {
    if (device.options().deferred) worker_ = std::thread([this] { work(); });
  }
  ~GuardedStream() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      if (!work_.empty()) {
        std::fprintf(stderr, "a stream of the guarded device is destroyed with work on it\n");
        std::abort();
      }
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
  }

  Device& device() const override { return device_; }
  void record(Event& event) override {
    queue([this, moment = static_cast<GuardedEvent&>(event).record()] {
      std::unique_lock lock(mutex_);
      const std::string failure = failure_;
      lock.unlock();
      moment->happen(failure);
    });
  }
  void wait(const Event& event) override {
    if (auto moment = static_cast<const GuardedEvent&>(event).moment()) {
      queue([moment = std::move(moment)] { moment->wait(); });
    }
  }
  void synchronize() override {
    ++device_.counts().synchronizations;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty(); });
    raise_failure();
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    queue([to = device_.reach(to), from = device_.reach(from), bytes] {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    });
  }
  void fill_zero(void* to, int64_t bytes) override {
    if (bytes == 0) return;
    queue([to = device_.reach(to), bytes] { std::memset(to, 0, static_cast<size_t>(bytes)); });
  }

  void queue(std::function<void()> task) {
    if (!device_.options().deferred) {
      task();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

 private:
  void raise_failure() {
    if (failure_.empty()) return;
    throw DeviceError(failure_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto task = work_.front();
      lock.unlock();
      const auto delay = device_.next_delay();
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      std::string failure;
      try {
        task();
      } catch (const std::exception& e) {
        failure = e.what();
      }
      lock.lock();
      if (failure_.empty()) failure_ = failure;
      work_.pop_front();
      if (work_.empty()) changed_.notify_all();
    }
  }

  GuardedDevice& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // the first is being done
  std::string failure_;
  bool ending_ = false;
  std::thread worker_;
};

}  // namespace

GuardedDevice::GuardedDevice(const GuardedOptions& options) : options_(options) {
  const auto size = static_cast<size_t>(options.bytes);
  const int file = memfd_create("guarded device", 0);
  RONDO_CHECK(file >= 0 && ftruncate(file, options.bytes) == 0);
  void* closed = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
  void* opened = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  RONDO_CHECK(closed != MAP_FAILED && opened != MAP_FAILED);
  closed_ = static_cast<std::byte*>(closed);
  opened_ = static_cast<std::byte*>(opened);
}

GuardedDevice::~GuardedDevice() {
  munmap(closed_, static_cast<size_t>(options_.bytes));
  munmap(opened_, static_cast<size_t>(options_.bytes));
}

Buffer GuardedDevice::allocate(int64_t bytes) {
  ++counts_.allocations;
  const int64_t rounded = (bytes / kAlignment + 1) * kAlignment;  // at least a byte between two buffers
  const std::lock_guard lock(mutex_);
  if (used_ + rounded > options_.bytes) {
    raise<OutOfMemory>("out of memory of the guarded device: {} bytes were wanted, {} of {} are left", bytes,
                       options_.bytes - used_, options_.bytes);
  }
  const int64_t offset = std::exchange(used_, used_ + rounded);
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  return {closed_ + offset, bytes,
          std::shared_ptr<void>(closed_ + offset, [this, offset, bytes](void*) { release(offset, bytes); })};
}

void GuardedDevice::release(int64_t offset, int64_t bytes) {
  std::memset(opened_ + offset, 0xff, static_cast<size_t>(bytes));  // NaN
  constexpr int64_t kPage = 4096;
  const int64_t first = (offset + kPage - 1) / kPage * kPage, end = (offset + bytes) / kPage * kPage;
  if (end > first) mprotect(opened_ + first, static_cast<size_t>(end - first), PROT_NONE);
  const std::lock_guard lock(mutex_);
  live_ -= bytes;
}

Buffer GuardedDevice::allocate_host(int64_t bytes) {
  ++counts_.allocations;
  const auto size = static_cast<size_t>((bytes / kAlignment + 1) * kAlignment);
  void* memory = std::aligned_alloc(kAlignment, size);
  std::memset(memory, 0, size);
  return {memory, bytes, std::shared_ptr<void>(memory, [size](void* p) {
            std::memset(p, 0xff, size);
            std::free(p);
          })};
}

DeviceMemory GuardedDevice::memory() const {
  const std::lock_guard lock(mutex_);
  return {.total = options_.bytes, .available = options_.bytes - used_, .in_use = live_, .peak = peak_};
}

std::unique_ptr<Stream> GuardedDevice::make_stream() {
  return std::make_unique<GuardedStream>(*this);
}

std::unique_ptr<Event> GuardedDevice::make_event() {
  return std::make_unique<GuardedEvent>(*this);
}

bool GuardedDevice::owns(const void* address) const {
  return address >= closed_ && address < closed_ + options_.bytes;
}

const void* GuardedDevice::open_address(const void* address) const {
  if (address == nullptr) return nullptr;
  if (!owns(address))
    raise<InternalError>("a kernel or collective was given memory that is not the device's");
  return opened_ + (static_cast<const std::byte*>(address) - closed_);
}

void* GuardedDevice::reach(const void* address) const {
  return const_cast<void*>(owns(address) ? open_address(address) : address);
}

void GuardedDevice::queue(Stream& stream, std::function<void()> work) {
  static_cast<GuardedStream&>(stream).queue(std::move(work));
}

void GuardedDevice::pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
}

void GuardedDevice::resume() {
  {
    const std::lock_guard lock(mutex_);
    paused_ = false;
  }
  resumed_.notify_all();
}

void GuardedDevice::wait_while_paused() {
  std::unique_lock lock(mutex_);
  resumed_.wait(lock, [this] { return !paused_; });
}

// One task in eight is late.
std::chrono::microseconds GuardedDevice::next_delay() {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = delays_++;
  }
  const auto words = random_words({.seed = options_.seed, .purpose = RandomPurpose::kSynthetic}, number, 0);
  return std::chrono::microseconds(words[0] % 8 == 0 ? words[1] % 300 : 0);
}

}  // namespace rondo::test
