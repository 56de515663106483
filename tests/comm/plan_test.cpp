#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/comm/half.h"
#include "runtime/comm/host/chunk_plan.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/signature.h"
#include "runtime/comm/topology.h"

namespace rondo {
namespace {

// Runs the plans of all ranks on small buffers of counters, by the plan's own rules of what may start when.
struct Ring {
  std::vector<ChunkPlan> plans;
  std::vector<std::vector<int>> in;
  std::vector<std::vector<int>> out;

  void run() {
    const size_t size = plans.size();
    std::vector<int64_t> sent(size, 0);
    std::vector<int64_t> received(size, 0);
    std::vector<std::vector<std::vector<int>>> wire(size);  // to each rank
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < size; ++r) {
        if (sent[r] < plans[r].sends() && received[r] >= plans[r].receives_before_send(sent[r])) {
          const auto c = plans[r].send(sent[r]++);
          const auto& from = c.from_input ? in[r] : out[r];
          wire[(r + 1) % size].emplace_back(from.begin() + c.offset, from.begin() + c.offset + c.bytes);
          moved = true;
        }
        const size_t next = static_cast<size_t>(received[r]);
        if (received[r] < plans[r].receives() && next < wire[r].size() &&
            sent[r] >= plans[r].sends_before_receive(received[r])) {
          const auto c = plans[r].receive(received[r]++);
          ASSERT_EQ(static_cast<int64_t>(wire[r][next].size()), c.bytes);
          for (int64_t i = 0; i < c.bytes; ++i) {
            const auto at = static_cast<size_t>(c.offset + i);
            const int value = wire[r][next][static_cast<size_t>(i)];
            out[r][at] = c.reduce ? in[r][at] + value : value;
          }
          moved = true;
        }
      }
    }
    for (size_t r = 0; r < size; ++r) {
      EXPECT_EQ(sent[r], plans[r].sends());
      EXPECT_EQ(received[r], plans[r].receives());
    }
  }
};

TEST(ChunkPlan, RingAllReduceSumsEverything) {
  for (int size = 2; size <= 6; ++size) {
    for (int64_t count = 0; count < 30; ++count) {
      for (int64_t chunk = 1; chunk <= 4; ++chunk) {
        Ring ring;
        for (int r = 0; r < size; ++r) {
          ring.plans.emplace_back().plan_all_reduce(r, size, count, 1, chunk);
          ring.in.emplace_back(static_cast<size_t>(count), 1 << (4 * r));
          ring.out.emplace_back(static_cast<size_t>(count), -1);
        }
        ring.run();
        int sum = 0;
        for (int r = 0; r < size; ++r) sum += 1 << (4 * r);
        for (const auto& out : ring.out) ASSERT_THAT(out, testing::Each(sum)) << size << " ranks, " << count;
      }
    }
  }
}

TEST(ChunkPlan, RingAllGatherAndChainDeliverEverything) {
  const std::vector<int64_t> counts{3, 0, 11, 1};
  Ring gather;
  Ring chain;
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
    ASSERT_EQ(c.offset % 4, 0);
    (c.reduce ? reduced : gathered) += c.bytes;
    end = std::max(end, c.offset + c.bytes);
  }
  EXPECT_EQ(end, count * 4);
  // Two of three segments are received twice each, as summand and as sum.
  EXPECT_NEAR(static_cast<double>(reduced), static_cast<double>(count) * 8 / 3, 16);
  EXPECT_NEAR(static_cast<double>(gathered), static_cast<double>(count) * 8 / 3, 16);
}

TEST(Reduce, KeepsWhatDoesNotCompareAndWrapsIntegers) {
  const std::vector<int32_t> big(9, std::numeric_limits<int32_t>::max());
  const std::vector<int32_t> ones(9, 1);
  std::vector<int32_t> out(9);
  combine(DType::kI32, ReduceOp::kSum, big.data(), ones.data(), out.data(), 9);
  EXPECT_THAT(out, testing::Each(std::numeric_limits<int32_t>::min()));
  const std::vector<uint16_t> wide(9, 65535);
  std::vector<uint16_t> product(9);
  const void* inputs[] = {wide.data(), wide.data()};
  reduce_all(DType::kU16, ReduceOp::kProduct, inputs, product.data(), 9);
  EXPECT_THAT(product, testing::Each(1));
  const float nan = std::nanf("");
  const float one = 1.0f;
  float result = 0.0f;
  combine(DType::kF32, ReduceOp::kMax, &nan, &one, &result, 1);
  EXPECT_TRUE(std::isnan(result));
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    half::float16 low;
    low.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(low);
    ASSERT_EQ(half::float16(value).bits, bits);
    ASSERT_EQ(half::float16(-value).bits, bits | 0x8000u);
    half::float16 high;
    high.bits = static_cast<uint16_t>(bits + 1);
    // The largest value's upper neighbour counts as 2^16, and becomes infinity.
    const float above = bits == 0x7bffu ? 65536.0f : static_cast<float>(high);
    const float middle = (value + above) / 2;
    ASSERT_EQ(half::float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(half::float16(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(half::float16(std::nextafter(middle, 1e9f)).bits, bits + 1);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(half::float16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(half::bfloat16(std::nanf("")))));
  EXPECT_EQ(half::bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);  // ties to even
  EXPECT_EQ(half::bfloat16(1.0f + 0x1.8p-7f).bits, 0x3f82);
  EXPECT_EQ(half::bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
}

TEST(Consensus, IsTheSameInAnyOrderOfMerging) {
  const auto call = [](int64_t count) {
    Signature signature;
    signature.count = count;
    return signature;
  };
  const std::vector<int64_t> counts{5, 5, 7, 5, 9};
  for (size_t first = 0; first < counts.size(); ++first) {
    // Dissemination round the ring from `first`, with overlaps.
    Consensus consensus(call(counts[first]), static_cast<int>(first));
    for (size_t step = 1; step < 2 * counts.size(); ++step) {
      const size_t r = (first + step * 3) % counts.size();
      Consensus other(call(counts[r]), static_cast<int>(r));
      other.merge(consensus);
      consensus.merge(other);
    }
    EXPECT_EQ(consensus.base_rank, 0);
    EXPECT_EQ(consensus.other_rank, 2);
    EXPECT_EQ(consensus.other.count, 7);
  }
  Consensus same(call(5), 3);
  same.merge(Consensus(call(5), 1));
  EXPECT_FALSE(same.differs());
}

Launch with_environment(const std::map<std::string, std::string>& variables) {
  return launched_by([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, IsReadFromTheEnvironment) {
  EXPECT_FALSE(with_environment({}));
  const Launch open_mpi = with_environment(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(open_mpi.launcher, "Open MPI");
  EXPECT_EQ(open_mpi.size, 4);
  EXPECT_EQ(open_mpi.rank, 2);
  EXPECT_EQ(open_mpi.local_size, 4);
  const Launch pmi = with_environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(pmi.launcher, "PMI");
  EXPECT_EQ(pmi.size, 2);
  EXPECT_FALSE(with_environment({{"PMI_RANK", "1"}}));
  const Launch pmix = with_environment({{"PMIX_RANK", "3"}});
  EXPECT_EQ(pmix.launcher, "PMIx");
  EXPECT_EQ(pmix.size, 0);
}

TEST(Launcher, CountsSlurmInAStepOnly) {
  std::map<std::string, std::string> slurm{
      {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NNODES", "1"}};
  EXPECT_EQ(with_environment(slurm).launcher, "Slurm");
  EXPECT_EQ(with_environment(slurm).local_size, 2);
  slurm["SLURM_NTASKS"] = "1";
  EXPECT_FALSE(with_environment(slurm));
  slurm["SLURM_NTASKS"] = "2";
  slurm["SLURM_STEP_ID"] = "4294967291";  // the batch script
  EXPECT_FALSE(with_environment(slurm));
  slurm.erase("SLURM_STEP_ID");  // a shell inside an allocation
  EXPECT_FALSE(with_environment(slurm));
}

TEST(ProgressThread, NeedsASpareCoreOrANetwork) {
  const auto topology = [](std::vector<std::string> hosts) { return make_topology(hosts, 0); };
  EXPECT_TRUE(wants_progress_thread(topology({"a", "b"}), 1, 1, 1));
  EXPECT_FALSE(wants_progress_thread(topology({"a", "a"}), 2, 2, 1));  // two cores shared by two ranks
  EXPECT_FALSE(wants_progress_thread(topology({"a", "a"}), 1, 2, 1));  // a core each
  EXPECT_TRUE(wants_progress_thread(topology({"a", "a"}), 8, 8, 2));
  EXPECT_TRUE(wants_progress_thread(topology({"a", "a"}), 4, 8, 3));  // four each, three used
  EXPECT_FALSE(wants_progress_thread(topology({"a", "a"}), 4, 8, 4));
}

}  // namespace
}  // namespace rondo
