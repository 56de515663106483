#include "runtime/base/random.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace rondo {
namespace {

TEST(Random, PermutationHoldsEveryIndexOnce) {
  for (const int64_t n : {0, 1, 2, 3, 1000}) {
    auto order = random_permutation({.seed = 7}, n);
    ASSERT_EQ(order.size(), static_cast<size_t>(n));
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(Random, PermutationIsAFunctionOfItsKey) {
  const RandomKey key{.seed = 1, .purpose = RandomPurpose::kShuffle, .stream = 3};
  EXPECT_EQ(random_permutation(key, 100), random_permutation(key, 100));
  RandomKey other = key;
  other.stream = 4;
  EXPECT_NE(random_permutation(key, 100), random_permutation(other, 100));
  other = key;
  other.seed = uint64_t{1} << 40;
  EXPECT_NE(random_permutation(key, 100), random_permutation(other, 100));
}

TEST(Random, EveryPermutationOfThreeIsEquallyLikely) {
  std::array<int, 27> seen{};
  constexpr int kDraws = 60000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const auto order = random_permutation({.seed = seed}, 3);
    ++seen[static_cast<size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  int kinds = 0;
  for (const int count : seen) {
    if (count == 0) continue;
    ++kinds;
    EXPECT_NEAR(count, kDraws / 6, 400);  // 4.4 standard deviations
  }
  EXPECT_EQ(kinds, 6);
}

TEST(Random, StreamsOfDifferentKeysAndCountersDiffer) {
  std::set<std::array<uint32_t, 4>> words;
  for (uint32_t stream = 0; stream < 4; ++stream) {
    for (uint64_t high = 0; high < 4; ++high) {
      for (uint64_t low = 0; low < 4; ++low) {
        words.insert(
            random_words({.seed = 5, .purpose = RandomPurpose::kDropout, .stream = stream}, high, low));
      }
    }
  }
  EXPECT_EQ(words.size(), 64u);
}

TEST(Random, UniformFloatStaysBelowOne) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_LT(uniform_float(0xffffffffu), 1.0f);
  EXPECT_LT(uniform_double(0xffffffffu, 0xffffffffu), 1.0);
}

}  // namespace
}  // namespace rondo
