#include "runtime/data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<int64_t> epoch_on_one_rank(SamplerOptions options, int64_t epoch) {
  options.rank = 0;
  options.world = 1;
  Sampler sampler(options);
  sampler.set_epoch(epoch);
  std::vector<int64_t> order;
  for (int64_t step = 0; step < sampler.steps(); ++step) {
    const auto part = sampler.indices(step);
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

struct Case {
  int64_t size;
  int64_t batch;
};

class SamplerOverRanks : public testing::TestWithParam<Case> {};

// The ranks' shares, put together in rank order, are the batch that one rank would take.
TEST_P(SamplerOverRanks, RanksTogetherTakeWhatOneWould) {
  for (const bool shuffle : {true, false}) {
    for (const int world : {1, 2, 3, 4, 8}) {
      SamplerOptions options{
          .size = GetParam().size, .batch = GetParam().batch, .seed = 11, .shuffle = shuffle, .world = world};
      std::vector<Sampler> ranks;
      for (options.rank = 0; options.rank < world; ++options.rank) ranks.emplace_back(options);
      for (const int64_t epoch : {0, 1, 7}) {
        std::vector<int64_t> order;
        for (Sampler& sampler : ranks) sampler.set_epoch(epoch);
        for (int64_t step = 0; step < ranks[0].steps(); ++step) {
          int64_t rows = 0;
          int64_t least = options.batch;
          int64_t most = 0;
          for (const Sampler& sampler : ranks) {
            const Share share = sampler.share(step);
            const auto indices = sampler.indices(step);
            ASSERT_EQ(share.first_row, rows);
            ASSERT_EQ(share.rows, static_cast<int64_t>(indices.size()));
            ASSERT_EQ(share.global_rows, std::min(options.batch, options.size - step * options.batch));
            ASSERT_LE(share.rows, sampler.max_rows());
            rows += share.rows;
            least = std::min(least, share.rows);
            most = std::max(most, share.rows);
            order.insert(order.end(), indices.begin(), indices.end());
          }
          EXPECT_EQ(rows, ranks[0].share(step).global_rows);
          EXPECT_LE(most - least, 1);
        }
        EXPECT_EQ(order, epoch_on_one_rank(options, epoch));
        std::sort(order.begin(), order.end());
        std::vector<int64_t> all(static_cast<size_t>(options.size));
        std::iota(all.begin(), all.end(), int64_t{0});
        EXPECT_EQ(order, all) << "every sample exactly once";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SamplerOverRanks,
                         testing::Values(Case{1, 1}, Case{1, 64}, Case{7, 2}, Case{64, 64}, Case{65, 64},
                                         Case{100, 3}, Case{101, 10}, Case{250, 33}, Case{5, 100}));

TEST(Sampler, MaxRowsIsReached) {
  for (int64_t size = 1; size < 30; ++size) {
    for (int64_t batch = 1; batch < 12; ++batch) {
      for (int rank = 0; rank < 5; ++rank) {
        const Sampler sampler({.size = size, .batch = batch, .rank = rank, .world = 5});
        int64_t most = 0;
        for (int64_t step = 0; step < sampler.steps(); ++step)
          most = std::max(most, sampler.share(step).rows);
        EXPECT_EQ(sampler.max_rows(), most) << size << " samples, batch " << batch << ", rank " << rank;
      }
    }
  }
}

TEST(Sampler, OrderDependsOnSeedAndEpochAlone) {
  const SamplerOptions options{.size = 50, .batch = 8, .seed = 3};
  const auto first = epoch_on_one_rank(options, 0);
  EXPECT_NE(first, epoch_on_one_rank(options, 1));
  SamplerOptions other = options;
  other.seed = 4;
  EXPECT_NE(first, epoch_on_one_rank(other, 0));
  other = options;
  other.batch = 7;
  EXPECT_EQ(first, epoch_on_one_rank(other, 0)) << "the batch size only cuts the order";

  Sampler sampler(options);  // going back to an epoch finds its order again
  sampler.set_epoch(5);
  sampler.set_epoch(0);
  EXPECT_THAT(sampler.indices(0), testing::ElementsAreArray(first.begin(), first.begin() + 8));
}

TEST(Sampler, UnshuffledFollowsTheSource) {
  Sampler sampler({.size = 5, .batch = 2, .shuffle = false});
  EXPECT_THAT(sampler.indices(0), testing::ElementsAre(0, 1));
  sampler.set_epoch(3);
  EXPECT_EQ(sampler.steps(), 3);
  EXPECT_THAT(sampler.indices(2), testing::ElementsAre(4));
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THAT([] { Sampler({.size = 0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("empty")));
  EXPECT_THAT([] { Sampler({.size = 4, .batch = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("batch size is 0")));
  EXPECT_THAT([] { Sampler({.size = 4, .batch = -3}); }, ThrowsMessage<InvalidArgument>(HasSubstr("-3")));
  EXPECT_THAT([] { Sampler({.size = 4, .rank = 2, .world = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 2 of 2")));
  Sampler sampler({.size = 4, .batch = 2});
  EXPECT_THAT([&] { sampler.set_epoch(-1); }, ThrowsMessage<InvalidArgument>(HasSubstr("epoch -1")));
  EXPECT_THAT([&] { sampler.share(2); }, ThrowsMessage<InvalidArgument>(HasSubstr("has 2 steps")));
}

}  // namespace
}  // namespace rondo
