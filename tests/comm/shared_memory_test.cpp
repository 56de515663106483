#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/shared/mapping.h"
#include "runtime/comm/shared/memory.h"
#include "runtime/comm/shared/sharing.h"
#include "tests/comm/shared_ranks.h"

namespace rondo {
namespace {

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

int64_t shared_mappings() {
  int64_t found = 0;
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  while (std::fgets(line, sizeof(line), maps) != nullptr) {
    found += std::string(line).find("memfd:rondo") != std::string::npos;
  }
  std::fclose(maps);
  return found;
}

void meet(Bootstrap& ranks) {
  const std::byte none{};
  std::vector<std::byte> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::span(&none, 1), all);
}

void check_mapping(Bootstrap& ranks, int64_t part_bytes, Passing passing) {
  const int64_t descriptors = open_descriptors();
  {
    const Mapping mapping = map_shared(ranks, part_bytes, {.passing = passing});
    for (int r = 0; r < ranks.size(); ++r) {
      const auto address = reinterpret_cast<uintptr_t>(mapping.part(r));
      EXPECT_EQ(address % (part_bytes >= (2 << 20) ? 2 << 20 : 4096), 0u);
      const std::byte* part = mapping.part(r);
      EXPECT_EQ(std::count(part, part + part_bytes, std::byte{0}), part_bytes);
    }
    meet(ranks);
    std::fill_n(mapping.part(ranks.rank()), part_bytes, static_cast<std::byte>(ranks.rank() + 1));
    meet(ranks);
    for (int r = 0; r < ranks.size(); ++r) {
      const std::byte* part = mapping.part(r);
      EXPECT_EQ(std::count(part, part + part_bytes, static_cast<std::byte>(r + 1)), part_bytes);
    }
    EXPECT_EQ(open_descriptors(), descriptors);
  }
  EXPECT_EQ(shared_mappings(), 0);
}

TEST(SharedMapping, EveryRankSeesEveryPart) {
  for (const Passing passing : {Passing::kAuto, Passing::kSocket}) {
    fork_ranks(3, [passing](Bootstrap& ranks) {
      check_mapping(ranks, 100, passing);
      check_mapping(ranks, 50000, passing);
      check_mapping(ranks, (2 << 20) + 5, passing);
    });
  }
  fork_ranks(1, [](Bootstrap& ranks) { check_mapping(ranks, 5000, Passing::kAuto); });
}

TEST(SharedMapping, TooMuchIsAnErrorOnEveryRank) {
  fork_ranks(2, [](Bootstrap& ranks) {
    EXPECT_THROW(map_shared(ranks, int64_t{1} << 50), Error);
    check_mapping(ranks, 100, Passing::kAuto);  // and the next one works
  });
}

TEST(SharedMemory, PlacesAreFoundByTheirMembers) {
  fork_ranks(3, [](Bootstrap& ranks) {
    const auto memory = std::make_shared<SharedMemory>(3, ranks.rank(), std::make_shared<Sharing>());
    const std::vector<int> everybody{0, 1, 2};
    const Buffer all = memory->allocate(ranks, everybody, 1000);
    EXPECT_EQ(std::count(all.as<char>(), all.as<char>() + 1000, 0), 1000);
    const Place place = memory->find(all.as<char>() + 100, 900, everybody);
    ASSERT_TRUE(place);
    EXPECT_EQ(place.offset, 100);
    EXPECT_EQ(memory->at(place, ranks.rank()), all.as<std::byte>() + 100);
    EXPECT_FALSE(memory->find(all.as<char>() + 100, 901, everybody));  // goes beyond the end
    EXPECT_FALSE(memory->find(&place, 1, everybody));

    Subset pair(ranks, {0, 2});
    const std::vector<int> two{0, 2};
    Subset rest(ranks, {1});
    const Buffer half =
        ranks.rank() == 1 ? memory->allocate(rest, std::vector{1}, 64) : memory->allocate(pair, two, 64);
    EXPECT_FALSE(memory->find(half.data(), 64, everybody));
    if (ranks.rank() != 1) {
      EXPECT_TRUE(memory->find(half.data(), 64, two));
      EXPECT_TRUE(memory->find(all.data(), 64, two));
    }
    meet(ranks);
  });
}

TEST(SharedMemory, GoesWhenAllHaveReleasedIt) {
  fork_ranks(2, [](Bootstrap& ranks) {
    const auto memory = std::make_shared<SharedMemory>(2, ranks.rank(), std::make_shared<Sharing>());
    const std::vector<int> both{0, 1};
    Buffer buffer = memory->allocate(ranks, both, 1000);
    if (ranks.rank() == 0) buffer = {};
    EXPECT_EQ(shared_mappings(), 1);  // rank 1 may still name places in it
    meet(ranks);
    if (ranks.rank() == 1) buffer = {};
    meet(ranks);
    const Buffer next = memory->allocate(ranks, both, 10);
    EXPECT_EQ(shared_mappings(), 1);
  });
}

}  // namespace
}  // namespace rondo
