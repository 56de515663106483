// Blocks of a span, one for each rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/base/dtype.h"

namespace rondo::nccl {

inline const char* at(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
inline char* at(void* data, int64_t bytes) {
  return static_cast<char*>(data) + bytes;
}

inline bool all_equal(std::span<const int64_t> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Calls `each(rank, bytes before its block, bytes)` for all ranks.
template <class Each>
void for_blocks(std::span<const int64_t> counts, DType dtype, const Each& each) {
  int64_t before = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    const int64_t bytes = counts[r] * dtype_size(dtype);
    each(static_cast<int>(r), before, bytes);
    before += bytes;
  }
}

}  // namespace rondo::nccl
