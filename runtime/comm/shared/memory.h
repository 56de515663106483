// The memory that communicators have allocated among ranks of one host, and where a span lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/device/device.h"

namespace rondo {

class Bootstrap;
struct Sharing;

// A place in a rank's part of an allocation, in words that other ranks understand.
struct Place {
  uint64_t id = 0;  // of the allocation; 0: memory that the others do not see
  int64_t offset = 0;

  explicit operator bool() const { return id != 0; }
};

// A part stays mapped everywhere until every member has released it: whoever holds a Buffer may name a place
// in it, and the others must find it.
class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  SharedMemory(int world_size, int world_rank, std::shared_ptr<const Sharing> sharing);
  ~SharedMemory();

  // Collective among `members`, whose ranks in the world are world_ranks. Sizes may differ; each part
  // has room for the largest. Throws on every member or on none.
  Buffer allocate(Bootstrap& members, std::span<const int> world_ranks, int64_t bytes);

  // Where this rank's span lies, if all of the ranks see it.
  Place find(const void* data, int64_t bytes, std::span<const int> world_ranks) const;
  // That place in the part of `world_rank`, as this process sees it.
  std::byte* at(Place place, int world_rank) const;

 private:
  struct Allocation;

  void release(uint64_t id);
  void sweep();  // with the lock held

  int world_size_;
  int world_rank_;
  std::shared_ptr<const Sharing> sharing_;
  mutable std::mutex mutex_;
  uint64_t made_ = 0;
  std::vector<std::unique_ptr<Allocation>> allocations_;
};

}  // namespace rondo
