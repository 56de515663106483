#pragma once
#include <bit>
#include <cstdint>
namespace rondo {
struct float16 {
  uint16_t bits;
  float16() = default;
  explicit float16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t a = u & 0x7fffffffu;
    uint32_t h;
    if (a > 0x7f800000u) h = 0x7e00u;
    else if (a >= 0x477ff000u) h = 0x7c00u;
    else if (a < 0x38800000u) h = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
    else h = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    bits = static_cast<uint16_t>(sign | h);
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t rest = bits & 0x7fffu;
    uint32_t u;
    if (rest >= 0x7c00u) u = 0x7f800000u | ((rest & 0x3ffu) << 13);
    else if (rest >= 0x400u) u = (rest << 13) + 0x38000000u;
    else u = std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24f);
    return std::bit_cast<float>(sign | u);
  }
};
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  explicit bfloat16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u
                                                                  : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
}  // namespace rondo
