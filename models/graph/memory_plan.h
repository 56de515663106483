#pragma once

#include <cstdint>
#include <vector>

namespace rondo {

// A piece of memory that is live from step `first` to step `last`, both included.
struct Storage {
  int64_t bytes = 0;
  int first = -1;  // -1: never used
  int last = -1;
  int64_t offset = 0;
  int device = 0;  // whose memory it is
};

// Gives every storage an offset (a multiple of 64) so that no two storages that are live at the same time
// overlap, and returns the size of the arena. Greedy best fit, the largest storage first; without `reuse`
// each storage gets memory of its own. Storages of other devices are left alone.
int64_t plan_memory(std::vector<Storage>& storages, bool reuse, int device = 0);

}  // namespace rondo
