#pragma once

#include <array>
#include <cstdint>

namespace rondo::cpu {

// Where a row's numbers start in the generator: low word of the counter counts groups of four elements.
struct DropoutRow {
  std::array<uint32_t, 2> key;
  uint32_t row;
  uint64_t step;
};

// mask[e] = 1 where element begin + e of the row is kept: its random word's upper 24 bits are at least
// `threshold`. `begin` is a multiple of kDropoutGroup; `mask` has room for `count` rounded up to one.
constexpr int64_t kDropoutGroup = 64;
void draw_mask(const DropoutRow& row, uint32_t threshold, int64_t begin, int64_t count, uint8_t* mask);

}  // namespace rondo::cpu
