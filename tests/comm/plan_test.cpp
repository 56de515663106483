#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/cost_model.h"
#include "runtime/comm/half.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/signature.h"
#include "runtime/comm/topology.h"

namespace rondo {
namespace {

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

TEST(CostModel, IsMadeOfItsValues) {
  CostModel model;
  model.inside.latency_us = 1.25;
  model.between = {.latency_us = 33, .bytes_per_us = 0.5, .crossing_share = 0.75};
  model.letter_bytes = 12345;
  CostModel copy;
  for (const auto& [name, value] : model.values()) copy.set(name, value);
  EXPECT_EQ(copy.inside.latency_us, 1.25);
  EXPECT_EQ(copy.between.crossing_share, 0.75);
  EXPECT_EQ(copy.letter_bytes, 12345);
  EXPECT_EQ(model.values().size(), 10U);
}

TEST(CostModel, RefusesWhatItDoesNotKnow) {
  CostModel model;
  EXPECT_THROW(model.set("between.latency", 7), InvalidArgument);
  EXPECT_THROW(model.set("latency_us", 7), InvalidArgument);
  EXPECT_THROW(model.set("", 7), InvalidArgument);
  for (const double value : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THROW(model.set("inside.latency_us", value), InvalidArgument) << value;
    EXPECT_THROW(model.set("letter_bytes", value), InvalidArgument) << value;
  }
}

TEST(CostModel, ChoosesBySizeAndTopology) {
  const CostModel model;
  const auto choose = [&](ReduceShape shape) { return choose_all_reduce(model, shape); };
  ReduceShape shape{.ranks = 8, .hosts = 8, .most_on_a_host = 1, .bytes = 100, .exchange_fits = true};
  EXPECT_EQ(choose(shape), ReduceAlgorithm::kExchange);
  shape.exchange_fits = false;
  shape.bytes = 20000;
  EXPECT_EQ(choose(shape), ReduceAlgorithm::kDirect);
  shape.bytes = 64 << 20;
  EXPECT_EQ(choose(shape), ReduceAlgorithm::kRing);
  shape.rounds_once = true;
  EXPECT_EQ(choose(shape), ReduceAlgorithm::kDirect);
  // Ranks that share a link would cross it many times over.
  EXPECT_EQ(choose({.ranks = 8, .hosts = 2, .most_on_a_host = 4, .bytes = 1 << 20}), ReduceAlgorithm::kRing);
  EXPECT_EQ(choose({.ranks = 8, .hosts = 2, .most_on_a_host = 4, .bytes = 1 << 20, .hosts_share = true}),
            ReduceAlgorithm::kHosts);
  EXPECT_EQ(choose({.ranks = 8,
                    .hosts = 2,
                    .most_on_a_host = 4,
                    .bytes = 1 << 20,
                    .hosts_share = true,
                    .rounds_once = true}),
            ReduceAlgorithm::kHosts);
  EXPECT_EQ(choose({.ranks = 2, .hosts = 2, .most_on_a_host = 1, .bytes = 1 << 20}), ReduceAlgorithm::kRing);
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
