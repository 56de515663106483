#include "runtime/comm/host/chunk_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

namespace rondo {
namespace {

// Runs the plans of all ranks on small buffers of counters, by the plan's own rules of what may start when.
struct Network {
  using Message = std::vector<int>;

  std::vector<ChunkPlan> plans;
  std::vector<std::vector<int>> in;
  std::vector<std::vector<int>> out;
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  std::vector<std::vector<std::deque<Message>>> wire;  // from, to
  std::vector<std::vector<Message>> rows;              // summands that wait for their row

  bool send(size_t r) {
    if (sent[r] >= plans[r].sends() || received[r] < plans[r].receives_before_send(sent[r])) return false;
    const auto c = plans[r].send(sent[r]++);
    const auto from = (c.from_input ? in[r] : out[r]).begin() + (c.from_input ? c.in_offset : c.out_offset);
    if (c.bytes > 0) wire[r][static_cast<size_t>(c.peer)].emplace_back(from, from + c.bytes);
    return true;
  }

  bool receive(size_t r) {
    if (received[r] >= plans[r].receives() || sent[r] < plans[r].sends_before_receive(received[r]))
      return false;
    const auto c = plans[r].receive(received[r]);
    auto& queue = wire[static_cast<size_t>(c.peer)][r];
    if (c.bytes > 0 && queue.empty()) return false;
    ++received[r];
    if (c.bytes == 0) return true;
    take(r, c, queue.front());
    queue.pop_front();
    return true;
  }

  void take(size_t r, const ChunkPlan::Chunk& c, const Message& message) {
    ASSERT_EQ(static_cast<int64_t>(message.size()), c.bytes);
    using Arrival = ChunkPlan::Arrival;
    if (c.arrival == Arrival::kSummand || c.arrival == Arrival::kLastOfRow) {
      rows[r].push_back(message);
      ASSERT_LE(static_cast<int64_t>(rows[r].size()), plans[r].kept() + 1);
      if (c.arrival == Arrival::kSummand) return;
      ASSERT_EQ(rows[r].size(), plans.size() - 1);
    }
    for (size_t i = 0; i < message.size(); ++i) {
      int value = message[i];
      if (c.arrival == Arrival::kLastOfRow) {
        value = 0;
        for (const Message& summand : rows[r]) value += summand[i];
      }
      if (c.arrival != Arrival::kResult) value += in[r][static_cast<size_t>(c.in_offset) + i];
      out[r][static_cast<size_t>(c.out_offset) + i] = value;
    }
    if (c.arrival == Arrival::kLastOfRow) rows[r].clear();
  }

  void run() {
    const size_t size = plans.size();
    sent.assign(size, 0);
    received.assign(size, 0);
    wire.assign(size, std::vector<std::deque<Message>>(size));
    rows.assign(size, {});
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < size; ++r) {
        moved = send(r) || moved;
        moved = receive(r) || moved;
      }
    }
    for (size_t r = 0; r < size; ++r) {
      EXPECT_EQ(sent[r], plans[r].sends());
      EXPECT_EQ(received[r], plans[r].receives());
      for (const auto& queue : wire[r]) EXPECT_TRUE(queue.empty());
    }
  }
};

void expect_sums(int size, int64_t count, const std::function<void(ChunkPlan&, int rank)>& plan) {
  Network network;
  int sum = 0;
  for (int r = 0; r < size; ++r) {
    plan(network.plans.emplace_back(), r);
    network.in.emplace_back(static_cast<size_t>(count), 1 << (4 * r));
    network.out.emplace_back(static_cast<size_t>(count), -1);
    sum += 1 << (4 * r);
  }
  network.run();
  for (const auto& out : network.out) ASSERT_THAT(out, testing::Each(sum)) << size << " ranks, " << count;
}

TEST(ChunkPlan, AllReduceSumsEverything) {
  for (int size = 2; size <= 6; ++size) {
    for (int64_t count = 0; count < 30; ++count) {
      for (int64_t chunk = 1; chunk <= 4; ++chunk) {
        expect_sums(size, count,
                    [&](ChunkPlan& plan, int r) { plan.plan_all_reduce(r, size, count, 1, chunk); });
        expect_sums(size, count,
                    [&](ChunkPlan& plan, int r) { plan.plan_direct_all_reduce(r, size, count, 1, chunk); });
      }
    }
  }
}

TEST(ChunkPlan, ReduceScatterSumsOwnBlocks) {
  const std::vector<int64_t> counts{3, 0, 11, 1};
  for (int64_t chunk = 1; chunk <= 5; ++chunk) {
    Network network;
    for (int r = 0; r < 4; ++r) {
      network.plans.emplace_back().plan_direct_reduce_scatter(r, 4, counts, 1, chunk);
      std::vector<int> in(15);
      for (int i = 0; i < 15; ++i) in[static_cast<size_t>(i)] = (r + 1) * (i + 1);
      network.in.push_back(in);
      network.out.emplace_back(static_cast<size_t>(counts[static_cast<size_t>(r)]), -1);
    }
    network.run();
    int element = 0;
    for (const auto& out : network.out) {
      for (const int value : out) EXPECT_EQ(value, 10 * ++element);
    }
  }
}

TEST(ChunkPlan, PairsDeliverEverything) {
  std::mt19937 random(3);
  for (int size = 2; size <= 5; ++size) {
    std::vector<std::vector<int64_t>> counts(static_cast<size_t>(size));
    for (auto& row : counts) {
      for (int r = 0; r < size; ++r) row.push_back(random() % 8);
    }
    Network network;
    for (size_t r = 0; r < counts.size(); ++r) {
      std::vector<int64_t> received;
      std::vector<int> in;
      for (size_t q = 0; q < counts.size(); ++q) {
        received.push_back(counts[q][r]);
        in.insert(in.end(), static_cast<size_t>(counts[r][q]), static_cast<int>(10 * r + q));
      }
      network.plans.emplace_back().plan_pairs(static_cast<int>(r), size, counts[r], received, 1, 3);
      network.in.push_back(in);
      network.out.emplace_back(
          static_cast<size_t>(std::accumulate(received.begin(), received.end(), int64_t{0})), -1);
    }
    network.run();
    for (size_t r = 0; r < counts.size(); ++r) {
      size_t at = 0;
      for (size_t q = 0; q < counts.size(); ++q) {
        for (int64_t i = 0; i < counts[q][r]; ++i, ++at) {
          EXPECT_EQ(network.out[r][at], q == r ? -1 : static_cast<int>(10 * q + r));
        }
      }
    }
  }
}

TEST(ChunkPlan, RingAllGatherAndChainDeliverEverything) {
  const std::vector<int64_t> counts{3, 0, 11, 1};
  Network gather;
  Network chain;
  for (int r = 0; r < 4; ++r) {
    gather.plans.emplace_back().plan_all_gather(r, 4, counts, 1, 2);
    gather.in.emplace_back();
    std::vector<int> own(15, -1);
    for (int b = 0, at = 0; b < 4; ++b) {
      for (int64_t i = 0; i < counts[static_cast<size_t>(b)]; ++i, ++at) {
        if (b == r) own[static_cast<size_t>(at)] = at;
      }
    }
    gather.out.push_back(own);
    chain.plans.emplace_back().plan_chain(r, 4, 2, 9, 4);
    chain.in.emplace_back();
    chain.out.emplace_back(9, r);
  }
  gather.run();
  chain.run();
  for (const auto& out : gather.out) {
    for (int i = 0; i < 15; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], i);
  }
  for (const auto& out : chain.out) EXPECT_THAT(out, testing::Each(2));
}

TEST(ChunkPlan, CountsBeyond32Bits) {
  const int64_t count = (int64_t{1} << 32) + 5;
  const int64_t chunk_bytes = 32 << 10;
  ChunkPlan plan;
  plan.plan_all_reduce(1, 3, count, 4, chunk_bytes);
  int64_t reduced = 0;
  int64_t gathered = 0;
  int64_t end = 0;
  for (int64_t i = 0; i < plan.receives(); ++i) {
    const auto c = plan.receive(i);
    ASSERT_LE(c.bytes, chunk_bytes);
    ASSERT_EQ(c.out_offset % 4, 0);
    (c.arrival != ChunkPlan::Arrival::kResult ? reduced : gathered) += c.bytes;
    end = std::max(end, c.out_offset + c.bytes);
  }
  EXPECT_EQ(end, count * 4);
  // Two of three segments are received twice each, as summand and as sum.
  EXPECT_NEAR(static_cast<double>(reduced), static_cast<double>(count) * 8 / 3, 16);
  EXPECT_NEAR(static_cast<double>(gathered), static_cast<double>(count) * 8 / 3, 16);
}

}  // namespace
}  // namespace rondo
