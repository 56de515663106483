// 16-bit floats as reductions see them: stored as bits, computed with as float. Conversions to 16 bits round
// to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace rondo::half {

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (whole >> 16) & 0x8000u;
    const uint32_t magnitude = whole & 0x7fffffffu;
    uint32_t result = 0;
    if (magnitude > 0x7f800000u) {
      result = 0x7e00u;  // NaN
    } else if (magnitude >= 0x477ff000u) {
      result = 0x7c00u;  // 65520 and above round to infinity
    } else if (magnitude < 0x38800000u) {
      // Below 2^-14: adding 0.5 lets the float unit round to a multiple of 2^-24, the unit of subnormals.
      result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      // The exponents' biases differ by 112; the carry of the rounding may run into the exponent, as it
      // should.
      result = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | result);
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    uint32_t result = 0;
    if (magnitude >= 0x7c00u) {
      result = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
    } else if (magnitude >= 0x400u) {
      result = (magnitude << 13) + 0x38000000u;
    } else {
      result = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    }
    return std::bit_cast<float>(sign | result);
  }
};

// The upper half of a float.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    const bool nan = (whole & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = (whole + 0x7fffu + ((whole >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>(nan ? (whole >> 16) | 0x40u : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

}  // namespace rondo::half
