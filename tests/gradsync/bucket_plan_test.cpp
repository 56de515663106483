#include "runtime/gradsync/bucket_plan.h"

#include <gmock/gmock.h>

#include <random>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr BucketOptions kSmall{.first_bytes = 64 * 4, .bytes = 256 * 4};

// Every size has one slot, in order, aligned, and slots do not overlap.
void expect_sound(const std::vector<Bucket>& plan, std::span<const int64_t> counts, int64_t tail,
                  const BucketOptions& options) {
  ASSERT_FALSE(plan.empty());
  int next = 0;
  for (size_t b = 0; b < plan.size(); ++b) {
    int64_t end = 0;
    for (const BucketSlot& slot : plan[b].slots) {
      EXPECT_EQ(slot.parameter, next);
      EXPECT_EQ(slot.count, counts[static_cast<size_t>(next)]);
      EXPECT_EQ(slot.offset % 16, 0);
      EXPECT_GE(slot.offset, end);
      EXPECT_LT(slot.offset - end, 16);
      end = slot.offset + slot.count;
      ++next;
    }
    EXPECT_GE(plan[b].count, end);
    EXPECT_LT(plan[b].count - end, 16);
    const bool last = b + 1 == plan.size();
    EXPECT_EQ(plan[b].tail, last ? tail : 0);
    const int64_t limit = (b == 0 ? options.first_bytes : options.bytes) / 4;
    if (!last) {
      EXPECT_GE(plan[b].count, limit);  // closed because it is full
    }
    if (!plan[b].slots.empty()) {
      EXPECT_LT(plan[b].slots.back().offset, limit);  // and not any later
    }
  }
  EXPECT_EQ(next, static_cast<int>(counts.size()));
}

TEST(BucketPlan, RandomSizesAreAllPlaced) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> counts(random() % 40);
    for (int64_t& count : counts) count = static_cast<int64_t>(random() % 5 == 0 ? 0 : random() % 300);
    const int64_t tail = static_cast<int64_t>(random() % 5);
    expect_sound(plan_buckets(counts, tail, kSmall), counts, tail, kSmall);
  }
}

TEST(BucketPlan, NothingToTrainIsOneBucketWithTheTail) {
  const auto plan = plan_buckets({}, 3, kSmall);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].count, 0);
  EXPECT_EQ(plan[0].tail, 3);
  EXPECT_TRUE(plan[0].slots.empty());
}

TEST(BucketPlan, FirstBucketClosesEarlyAndAnOversizeTensorClosesItsBucket) {
  const std::vector<int64_t> counts{64, 10000, 16, 16, 300, 1};
  const auto plan = plan_buckets(counts, 0, kSmall);
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan[0].slots.size(), 1u);  // 64 elements are the first bucket's size
  EXPECT_EQ(plan[1].slots.size(), 1u);  // far beyond the size
  EXPECT_EQ(plan[2].slots.size(), 3u);  // closed by the 300
  EXPECT_EQ(plan[3].slots.size(), 1u);
}

TEST(BucketPlan, DefaultsAreOneMebibyteThenTwentyFive) {
  const std::vector<int64_t> counts(60, int64_t{1} << 18);  // 60 tensors of 1 MiB
  const auto plan = plan_buckets(counts, 0, {});
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan[0].slots.size(), 1u);
  EXPECT_EQ(plan[1].slots.size(), 25u);
  EXPECT_EQ(plan[2].slots.size(), 25u);
  EXPECT_EQ(plan[3].slots.size(), 9u);
}

TEST(BucketPlan, WrongArgumentsAreRefused) {
  const std::vector<int64_t> negative{3, -1};
  EXPECT_THROW(plan_buckets(negative, 0, {}), InvalidArgument);
  EXPECT_THROW(plan_buckets({}, -1, {}), InvalidArgument);
  EXPECT_THROW(plan_buckets({}, 0, {.first_bytes = 0}), InvalidArgument);
  EXPECT_THROW(plan_buckets({}, 0, {.bytes = -5}), InvalidArgument);
}

TEST(BucketPlan, DigestsAreEqualExactlyWhenPlansAre) {
  const std::vector<int64_t> counts{64, 32, 200, 5};
  const std::string base = digest(plan_buckets(counts, 2, kSmall));
  EXPECT_EQ(digest(plan_buckets(counts, 2, kSmall)), base);
  EXPECT_NE(digest(plan_buckets(counts, 3, kSmall)), base);
  EXPECT_NE(digest(plan_buckets(counts, 2, {.first_bytes = 64 * 4, .bytes = 128 * 4})), base);
  EXPECT_NE(digest(plan_buckets(std::vector<int64_t>{64, 200, 32, 5}, 2, kSmall)), base);
  EXPECT_NE(digest(plan_buckets(std::vector<int64_t>{64, 32, 200, 6}, 2, kSmall)), base);
  EXPECT_NE(digest(plan_buckets(std::vector<int64_t>{64, 32, 200, 5, 0}, 2, kSmall)), base);
}

}  // namespace
}  // namespace rondo
