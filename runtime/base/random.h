// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11, through the Random123 headers).
//
// A number is a pure function of a key and a counter, so it does not depend on rank, thread or call order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

// What a stream of numbers is for. Streams of different purposes never overlap.
enum class RandomPurpose : uint32_t {
  kShuffle = 1,
  kInitializer = 2,
  kDropout = 3,
  kSynthetic = 4,
  kAugment = 5
};

struct RandomKey {
  uint64_t seed = 0;
  RandomPurpose purpose = RandomPurpose::kShuffle;
  uint32_t stream = 0;  // distinguishes layers, parameters, epochs within a purpose; below 2^24
};

// Four independent 32-bit words at position (high, low) of the key's stream.
std::array<uint32_t, 4> random_words(const RandomKey& key, uint64_t high, uint64_t low);

// The two 32-bit words that Philox takes as its key for `key`: for kernels that inline the generator. The
// counter is {low 32 bits of low, high 32 bits of low, low 32 bits of high, high 32 bits of high}.
std::array<uint32_t, 2> philox_key(const RandomKey& key);

// 24 random bits as a float in [0, 1): exact, never 1.
constexpr float uniform_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

// 53 random bits as a double in [0, 1).
constexpr double uniform_double(uint32_t high, uint32_t low) {
  return static_cast<double>((static_cast<uint64_t>(high) << 21) ^ (low >> 11)) * 0x1.0p-53;
}

// A permutation of 0..n-1 (Fisher-Yates over unbiased draws), a pure function of key and n.
std::vector<int64_t> random_permutation(const RandomKey& key, int64_t n);
// The same permutation of 0..order.size()-1, without allocating.
void random_permutation(const RandomKey& key, std::span<int64_t> order);

}  // namespace rondo
