// The memory of the simulated devices, and pinned host memory.
//
// Each device owns a range of addresses that is never handed out twice, so that a freed pointer stays wrong.
// Device memory is closed: an allocation opens only while work that declared a span of it runs, and, where
// the CPU has protection keys, only on the threads that run such work. Any other access ends the process with
// a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/history.h"

namespace rondo::sim {

inline constexpr int kHost = -1;

struct Allocation {
  uintptr_t base = 0;
  size_t bytes = 0;
  int device = kHost;  // kHost: pinned
  uint64_t number = 0;
  const char* made_by = "";
  const char* freed_by = nullptr;  // null while it lives
  History history;
  int open = 0;  // pieces of work that run on it

  bool live() const { return freed_by == nullptr; }
};

// All members but the static ones need the driver's lock.
class Memory {
 public:
  Memory(int devices, size_t bytes_each, bool protect);

  // nullptr when the device has not that much left.
  Allocation* allocate(int device, size_t bytes, const char* made_by, Touch birth);
  Allocation* pin(size_t bytes);
  Allocation* register_pinned(void* data, size_t bytes);
  void release(Allocation& allocation, const char* freed_by);  // the bytes are gone, the record stays

  // The allocation that holds this address, dead or alive, else the last one below it, else null.
  Allocation* at_or_below(const void* address);
  // The same, only where the address lies in live memory.
  Allocation* find(const void* address);
  int device_of(const void* address) const;  // by range of addresses, allocated or not; kHost for others
  size_t used(int device) const { return used_[static_cast<size_t>(device)]; }
  size_t total() const { return bytes_each_; }
  std::string where(const void* address) const;  // "device 1", "host memory"
  const std::map<uintptr_t, Allocation>& allocations() const { return allocations_; }

  // Opens the device allocations at these bases while work on them runs; calls nest.
  void open(const std::vector<uintptr_t>& bases);
  void close(const std::vector<uintptr_t>& bases);
  // Where there are protection keys: whether the calling thread may touch what is open. Wants no lock.
  void unlock_thread() const;
  void lock_thread() const;

 private:
  Allocation* enter(Allocation allocation);
  void protect(const Allocation& allocation, int protection) const;

  size_t bytes_each_;
  std::vector<uintptr_t> next_;  // by device: the first address not handed out yet
  std::vector<size_t> used_;
  bool protect_;
  int key_ = -1;  // protection key; -1 without
  uint64_t made_ = 0;
  std::map<uintptr_t, Allocation> allocations_;  // by base
};

}  // namespace rondo::sim
