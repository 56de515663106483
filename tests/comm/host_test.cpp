#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/cost_model.h"
#include "runtime/comm/half.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/host/tune.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/comm/conformance.h"
#include "tests/comm/mpi_main.h"
#include "tests/support/count_allocations.h"
#include "tests/support/patience.h"

namespace rondo {
namespace {

struct Mode {
  const char* name;
  Progress progress;
  bool shared_memory;
  int hosts = 1;  // that the ranks play to run on
};

// Neighbours share a host; where the ranks do not divide evenly, some hosts have fewer.
std::vector<std::string> played_hosts(const Mode& mode) {
  std::vector<std::string> hosts;
  const int size = test_session()->size();
  const int each = (size + mode.hosts - 1) / mode.hosts;
  for (int r = 0; mode.hosts > 1 && r < size; ++r) hosts.push_back("node" + std::to_string(r / each));
  return hosts;
}

// Slow links: hosts are crossed as seldom as can be.
CostModel played_costs(const Mode& mode) {
  CostModel costs;
  if (mode.hosts > 1) costs.between.bytes_per_us = 100;
  return costs;
}

std::unique_ptr<Communicator> make_communicator(Device& device, const Mode& mode, int64_t chunk_bytes = 0) {
  return make_host_communicator(test_session(), device,
                                {.deadline = test::patience(std::chrono::seconds(40)),
                                 .progress = mode.progress,
                                 .shared_memory = mode.shared_memory,
                                 .chunk_bytes = chunk_bytes,
                                 .costs = played_costs(mode),
                                 .hosts = played_hosts(mode)});
}

using Parameter = std::tuple<ConformanceCase, Mode>;

class HostConformance : public testing::TestWithParam<Parameter> {};

TEST_P(HostConformance, Case) {
  const auto device = make_cpu_device(1);
  const auto comm = make_communicator(*device, std::get<1>(GetParam()));
  try {
    std::get<0>(GetParam()).run(*comm);
  } catch (const std::exception& error) {
    comm->publish_failure(error.what());  // the other ranks need not wait for this one
    throw;
  }
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

constexpr Mode kModes[] = {{"Inline", Progress::kInline, false},
                           {"Thread", Progress::kThread, false},
                           {"SharedInline", Progress::kInline, true},
                           {"SharedThread", Progress::kThread, true},
                           {"TwoHosts", Progress::kThread, true, 2}};
// One of each, where who drives a collective does not matter.
constexpr Mode kTransports[] = {kModes[1], kModes[2], kModes[4]};
INSTANTIATE_TEST_SUITE_P(Reductions, HostConformance,
                         testing::Combine(testing::ValuesIn(reduction_cases()),
                                          testing::ValuesIn(kTransports)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Moves, HostConformance,
                         testing::Combine(testing::ValuesIn(move_cases()), testing::ValuesIn(kTransports)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Order, HostConformance,
                         testing::Combine(testing::ValuesIn(order_cases()), testing::ValuesIn(kModes)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Arguments, HostConformance,
                         testing::Combine(testing::ValuesIn(argument_cases()), testing::ValuesIn(kModes)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Random, HostConformance,
                         testing::Combine(testing::ValuesIn(random_cases()), testing::ValuesIn(kModes)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Errors, HostConformance,
                         testing::Combine(testing::ValuesIn(error_cases()), testing::ValuesIn(kModes)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Agreement, HostConformance,
                         testing::Combine(testing::ValuesIn(agreement_cases()), testing::ValuesIn(kModes)),
                         parameter_name);

TEST(HostCommunicator, ManyShortChunks) {
  const auto device = make_cpu_device(1);
  const auto comm = make_communicator(*device, kModes[0], 100);
  std::vector<double> values(30011);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * (comm->rank() + 1);
  const Span span = span_of(std::span(values));
  comm->all_reduce(span, span, ReduceOp::kSum).wait();
  const double ranks = comm->size() * (comm->size() + 1) / 2.0;
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<double>(i) * ranks);
}

TEST(HostCommunicator, SharesMemoryWithinHostsOfEqualSize) {
  const auto device = make_cpu_device(1);
  const auto comm = make_communicator(*device, kModes[4]);
  const int size = comm->size();
  EXPECT_EQ(comm->topology().hosts(), size > 1 ? 2 : 1);
  if (size > 1) {
    const bool fits = size % 2 == 0 && size > 2;
    EXPECT_EQ(comm->name().find("shared memory in hosts") != std::string::npos, fits) << comm->name();
  }
}

// 256 + 1 + 1 + ... in bfloat16, whose steps are 2 there: rounding on the way would lose every 1.
TEST(HostCommunicator, SixteenBitFloatsAreRoundedOnceAcrossHosts) {
  const auto device = make_cpu_device(1);
  const Mode& two_hosts = kModes[4];
  const auto comm = make_communicator(*device, two_hosts);
  constexpr int64_t kCount = 100003;
  if (comm->name().find("shared memory in hosts") != std::string::npos) {
    const ReduceShape shape{.ranks = comm->size(),
                            .hosts = 2,
                            .most_on_a_host = comm->size() / 2,
                            .bytes = 2 * kCount,
                            .hosts_share = true,
                            .rounds_once = true};
    EXPECT_EQ(choose_all_reduce(played_costs(two_hosts), shape), ReduceAlgorithm::kHosts);
  }
  const half::bfloat16 mine(comm->rank() == 0 ? 256.0f : 1.0f);
  const half::bfloat16 sum(255.0f + static_cast<float>(comm->size()));
  std::vector<uint16_t> in(kCount, mine.bits);
  std::vector<uint16_t> out(kCount);
  for (const bool in_place : {false, true}) {
    const Span result{in_place ? in.data() : out.data(), kCount, DType::kBF16};
    comm->all_reduce({in.data(), kCount, DType::kBF16}, result, ReduceOp::kSum).wait();
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(static_cast<const uint16_t*>(result.data)[i], sum.bits) << i;
    }
  }
}

TEST(HostCommunicator, SetsWithinOneHostShareMemory) {
  const auto device = make_cpu_device(1);
  const auto comm = make_communicator(*device, kModes[4]);
  const Topology& topology = comm->topology();
  const auto set = comm->split(topology.host_of[static_cast<size_t>(comm->rank())], -comm->rank());
  // Several ranks of a world on several hosts; a world on one host shares memory all over.
  const bool shares = set->size() > 1;
  EXPECT_EQ(set->name().find("shared memory of one host") == 0, shares) << set->name();
  const Buffer buffer = set->allocate(400000);
  const Span span{buffer.data(), 100000, DType::kF32};
  for (int64_t i = 0; i < span.count; ++i) buffer.as<float>()[i] = static_cast<float>(comm->rank());
  float expected = 0;
  for (int r = 0; r < comm->size(); ++r) {
    if (topology.host_of[static_cast<size_t>(r)] == topology.host_of[static_cast<size_t>(comm->rank())])
      expected += static_cast<float>(r);
  }
  // Sets and world in different orders, all on the way at once.
  std::vector<int32_t> ones(50000, 1);
  const Span world = span_of(std::span(ones));
  Work first = comm->all_reduce(world, world, ReduceOp::kSum);
  Work second = set->all_reduce(span, span, ReduceOp::kSum);
  if (comm->rank() % 2 == 0) first.wait();
  second.wait();
  first.wait();
  EXPECT_EQ(ones[49999], comm->size());
  for (int64_t i = 0; i < span.count; ++i) ASSERT_EQ(buffer.as<float>()[i], expected);
  const auto pair = set->split(set->rank() / 2, 0);
  pair->barrier().wait();
}

class HostModes : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, HostModes, testing::ValuesIn(kModes),
                         [](const auto& mode) { return std::string(mode.param.name); });

TEST_P(HostModes, AllocatesNothingAfterWarmUp) {
  const auto device = make_cpu_device(1);
  const auto comm = make_communicator(*device, GetParam());
  std::vector<float> small(100, 1.0f);
  std::vector<float> large(200000, 1.0f);
  std::vector<float> gathered(small.size() * static_cast<size_t>(comm->size()));
  const std::vector<int64_t> counts(static_cast<size_t>(comm->size()), 100);
  const Span small_span = span_of(std::span(small));
  const Span large_span = span_of(std::span(large));
  const auto step = [&] {
    Work a = comm->all_reduce(large_span, large_span, ReduceOp::kMax, {.label = "a label"});
    Work b = comm->all_reduce(small_span, small_span, ReduceOp::kMax);
    b.wait();
    a.wait();
    comm->broadcast(large_span, 0).wait();
    comm->all_gather_v(small_span, span_of(std::span(gathered)), counts).wait();
    comm->barrier().wait();
  };
  for (int i = 0; i < 3; ++i) step();
  const int64_t before = test::allocations_of_all_threads();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(test::allocations_of_all_threads() - before, 0);
}

TEST(HostCommunicator, MeasuredCostsAreEqualOnAllRanks) {
  if (test_session()->size() > 4) GTEST_SKIP() << "takes its time with so many ranks";
  const auto device = make_cpu_device(1);
  const CostModel costs = measure_costs(test_session(), *device);
  std::vector<double> least;
  for (const auto& [name, value] : costs.values()) least.push_back(value);
  std::vector<double> most = least;
  const auto comm = make_communicator(*device, kModes[0]);
  comm->all_reduce(span_of(std::span(least)), span_of(std::span(least)), ReduceOp::kMin).wait();
  comm->all_reduce(span_of(std::span(most)), span_of(std::span(most)), ReduceOp::kMax).wait();
  EXPECT_EQ(least, most);
  EXPECT_THAT(least, testing::Each(testing::Gt(0.0)));
  if (comm->topology().hosts() > 1) return;
  EXPECT_EQ(costs.between.latency_us, CostModel().between.latency_us);
}

TEST(HostCommunicator, RejectsBadOptions) {
  const auto device = make_cpu_device(1);
  EXPECT_THROW(make_host_communicator(nullptr, *device), InvalidArgument);
  EXPECT_THROW(make_host_communicator(test_session(), *device, {.deadline = std::chrono::milliseconds(0)}),
               InvalidArgument);
  EXPECT_THROW(make_host_communicator(test_session(), *device, {.chunk_bytes = -1}), InvalidArgument);
}

TEST(MpiSession, KnowsTheWorld) {
  const auto session = test_session();
  const Launch launch = launched_by();
  EXPECT_EQ(launch.launcher, "Open MPI");
  EXPECT_EQ(launch.rank, session->rank());
  EXPECT_EQ(launch.size, session->size());
  EXPECT_TRUE(session->threads_allowed());
  EXPECT_EQ(static_cast<int>(session->hosts().size()), session->size());
  EXPECT_THAT(session->library(), testing::HasSubstr("MPI"));
  EXPECT_STREQ(std::getenv("OMPI_MCA_pml"), "ob1");
}

}  // namespace
}  // namespace rondo
