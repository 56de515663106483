#pragma once

#include <cstdint>
#include <cstring>

namespace rondo {

// Bytes may be 0, and the two places the same.
inline void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace rondo
