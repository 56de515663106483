// exp and tanh that the compiler can vectorize: branch-free, the same bits on every instruction set.
//
// Range reduction and minimax polynomials after Cephes (Moshier, Methods and Programs for Mathematical
// Functions, 1989): relative error below 2e-7 over the whole range.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace rondo::cpu {

// exp(x); 0 below -87.3 (the smallest normal float), infinity above 88.7.
inline float vector_exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // their sum is ln 2 to 33 bits
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float clamped = x < -88.0f ? -88.0f : (x > 89.0f ? 89.0f : x);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^n in two factors, since n reaches 128 and -127.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((exponent - half + 127) << 23);
  const float y = p * first * second;
  const float bounded = x < -87.336544f ? 0.0f : (x > 88.722839f ? HUGE_VALF : y);
  return x != x ? x : bounded;
}

// e^x - 1: x P(x) near 0, where the difference would cancel.
inline float vector_expm1(float x) {
  float p = 1.3981999507e-3f;
  p = p * x + 8.3334519073e-3f;
  p = p * x + 4.1665795894e-2f;
  p = p * x + 1.6666665459e-1f;
  p = p * x + 5.0000001201e-1f;
  const float near = p * (x * x) + x;
  const float far = vector_exp(x) - 1.0f;
  return std::fabs(x) < 0.35f ? near : (x != x ? x : far);
}

// The error function, after Abramowitz and Stegun 7.1.26: absolute error below 3e-7.
inline float vector_erf(float x) {
  const float magnitude = std::fabs(x);
  const float t = 1.0f / (1.0f + 0.3275911f * magnitude);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  return std::copysign(1.0f - p * t * vector_exp(-magnitude * magnitude), x);
}

inline float vector_sigmoid(float x) {
  return 1.0f / (1.0f + vector_exp(-x));
}

inline float vector_tanh(float x) {
  const float magnitude = std::fabs(x);
  // Near 0: x + x^3 P(x^2); elsewhere 1 - 2 / (exp(2|x|) + 1).
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float far = std::copysign(1.0f - 2.0f / (vector_exp(magnitude + magnitude) + 1.0f), x);
  return magnitude < 0.625f ? near : (x != x ? x : far);
}

}  // namespace rondo::cpu
