// A device that keeps host code honest, without any GPU: its memory cannot be touched by host code at the
// addresses it gives out, and its streams may run later, on threads of their own.
//
// The memory is mapped twice. Addresses given out lie in a mapping without any access, so whoever uses one
// outside of a kernel or a stream's copy is killed at once; kernels and copies work on the other mapping,
// which open() finds. Memory is never given out twice. Freed memory is overwritten and its whole pages
// are closed, so work that comes too late computes rubbish or kills.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/device/device.h"

namespace rondo::test {

struct GuardedOptions {
  bool deferred = true;                // work runs on a thread of its stream, after random delays
  uint64_t seed = 1;                   // of the delays
  int64_t bytes = int64_t{256} << 20;  // of the device; further allocations throw OutOfMemory
};

// What the host did to the device, and what the device does to the host.
struct GuardedCounts {
  std::atomic<int64_t> allocations{0};       // of both kinds of memory
  std::atomic<int64_t> synchronizations{0};  // calls of Stream::synchronize
  std::atomic<int64_t> event_waits{0};       // calls of Event::synchronize that found the event still to come
  std::atomic<int64_t> waiting{0};           // hosts inside such a call now
  std::atomic<int64_t> kernels{0};           // queued
  std::atomic<int64_t> fails_from{INT64_MAX};  // kernels of this number and later ones throw
  std::atomic<int64_t> steps{0};               // training steps whose tail was queued
};

class GuardedDevice final : public Device {
 public:
  explicit GuardedDevice(const GuardedOptions& options = {});
  ~GuardedDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return "guarded device"; }
  int threads() const override { return 1; }
  Buffer allocate(int64_t bytes) override;
  Buffer allocate_host(int64_t bytes) override;
  DeviceMemory memory() const override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;

  const GuardedOptions& options() const { return options_; }
  GuardedCounts& counts() { return counts_; }

  bool owns(const void* address) const;
  // Where kernels find the memory at this address; null stays null. Throws InternalError for memory that is
  // not the device's.
  template <class T>
  T* open(T* address) const {
    return static_cast<T*>(const_cast<void*>(open_address(address)));
  }
  // The same, but other memory is left as it is: for copies.
  void* reach(const void* address) const;

  // Queues work on a stream that this device made.
  static void queue(Stream& stream, std::function<void()> work);

  // While paused, kernels do not start.
  void pause();
  void resume();
  void wait_while_paused();
  std::chrono::microseconds next_delay();

 private:
  const void* open_address(const void* address) const;
  void release(int64_t offset, int64_t bytes);

  GuardedOptions options_;
  GuardedCounts counts_;
  std::byte* closed_ = nullptr;  // what is given out
  std::byte* opened_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable resumed_;
  bool paused_ = false;
  int64_t used_ = 0;  // bytes given out so far, also those freed since
  int64_t live_ = 0;
  int64_t peak_ = 0;
  uint64_t delays_ = 0;
};

}  // namespace rondo::test
