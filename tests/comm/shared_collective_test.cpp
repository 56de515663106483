#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/base/error.h"
#include "tests/comm/shared_ranks.h"

namespace rondo {
namespace {

using testing::HasSubstr;

// One rank's view of a test: a group, and memory of both kinds.
struct Party {
  explicit Party(Bootstrap& ranks)
      : bootstrap(ranks), world(SharedWorld::join(ranks)), group(make_group(world, ranks)) {}

  int rank() const { return group->rank(); }
  int size() const { return group->size(); }
  // Zeroed; in shared memory or private, starting `skew` bytes past alignment.
  std::byte* memory(int64_t bytes, bool shared, int64_t skew) {
    buffers.push_back(shared ? group->allocate(bootstrap, bytes + skew) : Buffer());
    if (shared) return buffers.back().as<std::byte>() + skew;
    own.emplace_back(static_cast<size_t>(bytes + skew) + 1);
    return own.back().data() + skew;
  }

  Bootstrap& bootstrap;
  std::shared_ptr<SharedWorld> world;
  std::unique_ptr<SharedGroup> group;
  std::vector<Buffer> buffers;
  std::vector<std::vector<std::byte>> own;
};

Signature signature_of(Transfer transfer, int64_t count, int64_t sequence = 0) {
  Signature signature;
  signature.kind = transfer == Transfer::kAllReduce ? CollectiveKind::kAllReduce : CollectiveKind::kBarrier;
  signature.count = count;
  signature.dtype = DType::kI32;
  signature.sequence = sequence;
  return signature;
}

int32_t value(int from, int to, int64_t i) {
  return static_cast<int32_t>(from * 1000003 + to * 10007 + i % 9973);
}

int32_t get(const std::byte* at, int64_t i) {
  int32_t found;
  std::memcpy(&found, at + 4 * i, 4);
  return found;
}

void fill(std::byte* at, int from, int to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t v = value(from, to, i);
    std::memcpy(at + 4 * i, &v, 4);
  }
}

int64_t wrong(const std::byte* at, int from, int to, int64_t count) {
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) bad += get(at, i) != value(from, to, i);
  return bad;
}

int64_t sum(const std::vector<int64_t>& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, int64_t{0});
}

enum class Where { kPrivate, kShared, kMixed };  // kMixed: every second rank has shared memory

struct Setting {
  Where where = Where::kPrivate;
  bool in_place = false;
  int64_t skew = 0;

  // The allocation is collective, so all ranks make it; not all use it.
  std::byte* memory(Party& party, int64_t bytes) const {
    std::byte* shared = where == Where::kPrivate ? nullptr : party.memory(bytes, true, skew);
    const bool use = where == Where::kShared || (where == Where::kMixed && party.rank() % 2 == 1);
    return use ? shared : party.memory(bytes, false, skew);
  }
};

Span ints(std::byte* at, int64_t count) {
  return {at, count, DType::kI32};
}

void all_reduce(Party& party, int64_t count, const Setting& setting) {
  std::byte* in = setting.memory(party, 4 * count);
  std::byte* out = setting.in_place ? in : setting.memory(party, 4 * count);
  fill(in, party.rank(), 0, count);
  run(*party.group, {.transfer = Transfer::kAllReduce,
                     .signature = signature_of(Transfer::kAllReduce, count),
                     .in = ints(in, count),
                     .out = ints(out, count),
                     .reduction = {.dtype = DType::kI32}});
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t expected = 0;
    for (int r = 0; r < party.size(); ++r) expected += value(r, 0, i);
    bad += get(out, i) != static_cast<int32_t>(expected);
  }
  EXPECT_EQ(bad, 0) << "all_reduce of " << count;
}

void broadcast(Party& party, int64_t count, const Setting& setting, int root) {
  std::byte* data = setting.memory(party, 4 * count);
  if (party.rank() == root) fill(data, root, 0, count);
  run(*party.group, {.transfer = Transfer::kBroadcast,
                     .signature = signature_of(Transfer::kBroadcast, count),
                     .in = ints(data, count),
                     .out = ints(data, count),
                     .root = root});
  EXPECT_EQ(wrong(data, root, 0, count), 0) << "broadcast of " << count;
}

void gather(Party& party, const std::vector<int64_t>& counts, const Setting& setting, int root) {
  const bool to_all = root < 0;
  const int64_t total = sum(counts, party.size());
  const int64_t own = counts[static_cast<size_t>(party.rank())];
  std::byte* out = setting.memory(party, 4 * total);
  std::byte* in = setting.memory(party, 4 * own);
  if (setting.in_place && (to_all || party.rank() == root)) in = out + 4 * sum(counts, party.rank());
  fill(in, party.rank(), 0, own);
  run(*party.group, {.transfer = to_all ? Transfer::kAllGather : Transfer::kGather,
                     .signature = signature_of(Transfer::kGather, total),
                     .in = ints(in, own),
                     .out = ints(out, to_all || party.rank() == root ? total : 0),
                     .root = std::max(root, 0),
                     .out_counts = counts});
  if (!to_all && party.rank() != root) return;
  for (int r = 0; r < party.size(); ++r) {
    EXPECT_EQ(wrong(out + 4 * sum(counts, r), r, 0, counts[static_cast<size_t>(r)]), 0)
        << (to_all ? "all_gather of " : "gather of ") << total << " from rank " << r;
  }
}

void scatter(Party& party, const std::vector<int64_t>& counts, const Setting& setting, int root) {
  const int64_t total = sum(counts, party.size());
  const int64_t own = counts[static_cast<size_t>(party.rank())];
  const bool is_root = party.rank() == root;
  std::byte* in = setting.memory(party, 4 * total);
  std::byte* out = setting.memory(party, 4 * own);
  if (setting.in_place && is_root) out = in + 4 * sum(counts, root);
  if (is_root) {
    for (int r = 0; r < party.size(); ++r) {
      fill(in + 4 * sum(counts, r), root, r, counts[static_cast<size_t>(r)]);
    }
  }
  run(*party.group, {.transfer = Transfer::kScatter,
                     .signature = signature_of(Transfer::kScatter, total),
                     .in = ints(in, is_root ? total : 0),
                     .out = ints(out, own),
                     .root = root,
                     .in_counts = counts});
  EXPECT_EQ(wrong(out, root, party.rank(), own), 0) << "scatter";
}

void reduce_scatter(Party& party, const std::vector<int64_t>& counts, const Setting& setting) {
  const int64_t total = sum(counts, party.size());
  const int64_t own = counts[static_cast<size_t>(party.rank())];
  const int64_t before = sum(counts, party.rank());
  std::byte* in = setting.memory(party, 4 * total);
  std::byte* out = setting.memory(party, 4 * own);
  if (setting.in_place) out = in + 4 * before;
  fill(in, party.rank(), 0, total);
  run(*party.group, {.transfer = Transfer::kReduceScatter,
                     .signature = signature_of(Transfer::kReduceScatter, total),
                     .in = ints(in, total),
                     .out = ints(out, own),
                     .reduction = {.dtype = DType::kI32, .op = ReduceOp::kMax},
                     .in_counts = counts});
  EXPECT_EQ(wrong(out, party.size() - 1, 0, 0), 0);
  int64_t bad = 0;
  for (int64_t i = 0; i < own; ++i) bad += get(out, i) != value(party.size() - 1, 0, before + i);
  EXPECT_EQ(bad, 0) << "reduce_scatter of " << total;
}

// matrix[a][b]: elements from a to b.
void all_to_all(Party& party, const std::vector<std::vector<int64_t>>& matrix, const Setting& setting) {
  const auto me = static_cast<size_t>(party.rank());
  std::vector<int64_t> from;
  for (const auto& row : matrix) from.push_back(row[me]);
  const std::vector<int64_t>& to = matrix[me];
  std::byte* in = setting.memory(party, 4 * sum(to, party.size()));
  std::byte* out = setting.in_place ? in : setting.memory(party, 4 * sum(from, party.size()));
  for (int r = 0; r < party.size(); ++r)
    fill(in + 4 * sum(to, r), party.rank(), r, to[static_cast<size_t>(r)]);
  run(*party.group, {.transfer = Transfer::kAllToAll,
                     .signature = signature_of(Transfer::kAllToAll, 0),
                     .in = ints(in, sum(to, party.size())),
                     .out = ints(out, sum(from, party.size())),
                     .in_counts = to,
                     .out_counts = from});
  for (int r = 0; r < party.size(); ++r) {
    EXPECT_EQ(wrong(out + 4 * sum(from, r), r, party.rank(), from[static_cast<size_t>(r)]), 0)
        << "all_to_all";
  }
}

std::vector<int64_t> random_counts(std::mt19937_64& random, int size, int64_t scale) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) {
    counts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(scale + 1)));
  }
  return counts;
}

void every_transfer(Party& party) {
  std::mt19937_64 random(5);  // the same on all ranks
  for (const Where where : {Where::kPrivate, Where::kShared, Where::kMixed}) {
    for (const bool in_place : {false, true}) {
      const Setting setting{where, in_place, in_place ? 0 : 3};
      for (const int64_t scale : {0, 1, 30, 3000, 40000, 300000}) {
        const int root = static_cast<int>(random() % static_cast<uint64_t>(party.size()));
        const testing::ScopedTrace trace(
            __FILE__, __LINE__,
            fmt::format("memory {} in place {} scale {}", static_cast<int>(where), in_place, scale));
        all_reduce(party, scale, setting);
        broadcast(party, scale, setting, root);
        if (scale == 300000 && party.size() > 3) continue;  // the others repeat this for each rank
        const std::vector<int64_t> counts = random_counts(random, party.size(), scale);
        gather(party, counts, setting, -1);
        gather(party, counts, setting, root);
        scatter(party, counts, setting, root);
        reduce_scatter(party, counts, setting);
        std::vector<std::vector<int64_t>> matrix;
        for (int r = 0; r < party.size(); ++r) matrix.push_back(random_counts(random, party.size(), scale));
        if (in_place) matrix.assign(matrix.size(), std::vector<int64_t>(matrix.size(), scale));
        all_to_all(party, matrix, setting);
        run(*party.group, {.signature = signature_of(Transfer::kBarrier, 0)});
        party.buffers.clear();
        party.own.clear();
      }
    }
  }
}

class SharedCollectives : public testing::TestWithParam<int> {};

TEST_P(SharedCollectives, EveryTransferFromEveryKindOfMemory) {
  fork_ranks(GetParam(), [](Bootstrap& ranks) {
    Party party(ranks);
    every_transfer(party);
  });
}

TEST_P(SharedCollectives, DifferentOffsetsAndAllocations) {
  fork_ranks(GetParam(), [](Bootstrap& ranks) {
    Party party(ranks);
    constexpr int64_t kCount = 20000;
    const Buffer a = party.group->allocate(ranks, 4 * kCount * 2);
    const Buffer b = party.group->allocate(ranks, 4 * kCount * 2);
    const Buffer& mine = party.rank() % 2 == 0 ? a : b;
    std::byte* data = mine.as<std::byte>() + 4 * 100 * party.rank();
    fill(data, party.rank(), 0, kCount);
    run(*party.group, {.transfer = Transfer::kAllReduce,
                       .signature = signature_of(Transfer::kAllReduce, kCount),
                       .in = ints(data, kCount),
                       .out = ints(data, kCount),
                       .reduction = {.dtype = DType::kI32, .op = ReduceOp::kMin}});
    EXPECT_EQ(wrong(data, 0, 0, kCount), 0);
  });
}

TEST_P(SharedCollectives, MismatchLeavesTheGroupUsable) {
  if (GetParam() == 1) return;
  fork_ranks(GetParam(), [](Bootstrap& ranks) {
    Party party(ranks);
    const bool odd = party.rank() == party.size() - 1;
    for (const auto& [a, b] : {std::pair(10, 11), std::pair(10, 100000), std::pair(90000, 100000)}) {
      const int64_t count = odd ? b : a;
      std::byte* data = party.memory(4 * count, false, 0);
      try {
        run(*party.group, {.transfer = Transfer::kAllReduce,
                           .signature = signature_of(Transfer::kAllReduce, count, 7),
                           .in = ints(data, count),
                           .out = ints(data, count),
                           .reduction = {.dtype = DType::kI32}});
        ADD_FAILURE() << "no mismatch";
      } catch (const MismatchError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("rank 0 (here) calls all_reduce #7 (sum of " + std::to_string(a)));
        EXPECT_THAT(error.what(), HasSubstr("all_reduce #7 (sum of " + std::to_string(b)));
      }
      all_reduce(party, 50000, {});
    }
    // Counts that do not fit together.
    std::vector<int64_t> to(static_cast<size_t>(party.size()), 4);
    const std::vector<int64_t> from = to;
    if (odd) std::swap(to[0] = 3, to[1] = 5);
    std::byte* in = party.memory(4 * sum(to, party.size()), false, 0);
    std::byte* out = party.memory(4 * sum(from, party.size()), false, 0);
    const SharedCall call{.transfer = Transfer::kAllToAll,
                          .in = ints(in, sum(to, party.size())),
                          .out = ints(out, sum(from, party.size())),
                          .in_counts = to,
                          .out_counts = from};
    EXPECT_THROW(run(*party.group, call), MismatchError);
    all_reduce(party, 50000, {});
  });
}

TEST_P(SharedCollectives, GroupsHaveOrdersOfTheirOwn) {
  fork_ranks(GetParam(), [](Bootstrap& ranks) {
    const auto world = SharedWorld::join(ranks);
    const auto first = make_group(world, ranks);
    const auto second = make_group(world, ranks);
    std::vector<std::vector<int32_t>> data(8, std::vector<int32_t>(30000, ranks.rank()));
    std::vector<std::unique_ptr<SharedCollective>> calls;
    for (size_t k = 0; k < data.size(); ++k) {
      // Even ranks start the first group's calls first, odd ones the second's.
      const size_t half = data.size() / 2;
      const size_t which = ranks.rank() % 2 == 0 ? k : (k + half) % data.size();
      SharedGroup& group = which < half ? *first : *second;
      const Span span = span_of(std::span(data[which]));
      calls.push_back(std::make_unique<SharedCollective>(group));
      calls.back()->start({.transfer = Transfer::kAllReduce,
                           .signature = signature_of(Transfer::kAllReduce, span.count),
                           .in = span,
                           .out = span,
                           .reduction = {.dtype = DType::kI32}});
    }
    SharedWait wait(*world);
    for (bool over = false; !over;) {
      bool moved = false;
      over = true;
      for (const auto& call : calls) {
        moved = call->advance() || moved;
        over = over && call->over();
      }
      moved ? wait.reset() : static_cast<void>(wait.pause());
    }
    for (const auto& one : data) EXPECT_EQ(one.back(), ranks.size() * (ranks.size() - 1) / 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedCollectives, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

TEST(SharedReduction, ScalesAndAverages) {
  fork_ranks(3, [](Bootstrap& ranks) {
    Party party(ranks);
    for (const int64_t count : {int64_t{5}, int64_t{100000}}) {
      std::vector<float> values(static_cast<size_t>(count), static_cast<float>(ranks.rank() + 1));
      const Span span = span_of(std::span(values));
      run(*party.group, {.transfer = Transfer::kAllReduce,
                         .in = span,
                         .out = span,
                         .reduction = {.prescale = 0.5, .postscale = 8, .divisor = 3}});
      EXPECT_EQ(std::count(values.begin(), values.end(), 8.0f), count);
    }
  });
}

}  // namespace
}  // namespace rondo
