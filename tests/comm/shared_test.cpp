// The conformance suite over shared memory, with ranks as forked processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/shared/shared_communicator.h"
#include "runtime/comm/topology.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/comm/conformance.h"
#include "tests/comm/shared_ranks.h"
#include "tests/support/patience.h"

namespace rondo {
namespace {

using Body = std::function<void(Communicator&)>;

void with_communicators(int size, const SharedOptions& options, const Body& body,
                        const std::vector<int>& casualties = {}) {
  fork_ranks(
      size,
      [&](Bootstrap& ranks) {
        const std::vector<std::string> hosts(static_cast<size_t>(size), this_host_name());
        const auto device = make_cpu_device(1);
        const auto comm =
            make_shared_communicator(ranks, make_topology(hosts, ranks.rank()), *device, options);
        try {
          body(*comm);
        } catch (const std::exception& error) {
          comm->publish_failure(error.what());  // the others need not wait for this one
          throw;
        }
      },
      casualties);
}

using Parameter = std::tuple<ConformanceCase, int, bool>;

class SharedConformance : public testing::TestWithParam<Parameter> {};

TEST_P(SharedConformance, Case) {
  const auto& [conformance, ranks, thread] = GetParam();
  with_communicators(ranks, {.deadline = test::patience(std::chrono::seconds(30)), .progress_thread = thread},
                     conformance.run);
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param)) +
         (std::get<2>(info.param) ? "_Thread" : "_Inline");
}

auto over_ranks(std::span<const ConformanceCase> cases) {
  return testing::Combine(testing::ValuesIn(cases), testing::Values(1, 2, 3, 4, 5, 8),
                          testing::Values(false));
}
auto with_thread(std::span<const ConformanceCase> cases) {
  return testing::Combine(testing::ValuesIn(cases), testing::Values(1, 3), testing::Values(true));
}

INSTANTIATE_TEST_SUITE_P(Reductions, SharedConformance, over_ranks(reduction_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Moves, SharedConformance, over_ranks(move_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Order, SharedConformance, over_ranks(order_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Random, SharedConformance, over_ranks(random_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Errors, SharedConformance, over_ranks(error_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Agreement, SharedConformance, over_ranks(agreement_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(ReductionsThread, SharedConformance, with_thread(reduction_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(MovesThread, SharedConformance, with_thread(move_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(OrderThread, SharedConformance, with_thread(order_cases()), parameter_name);
INSTANTIATE_TEST_SUITE_P(ErrorsThread, SharedConformance, with_thread(error_cases()), parameter_name);

TEST(SharedCommunicator, WorksWithDescriptorsSentThroughASocket) {
  with_communicators(3, {.passing = Passing::kSocket}, [](Communicator& comm) {
    const Buffer buffer = comm.allocate(400000);
    const Span span{buffer.data(), 100000, DType::kF32};
    for (int64_t i = 0; i < span.count; ++i) buffer.as<float>()[i] = static_cast<float>(comm.rank());
    comm.all_reduce(span, span, ReduceOp::kSum).wait();
    EXPECT_EQ(buffer.as<float>()[99999], 3.0f);
  });
}

TEST(SharedCommunicator, SaysWhoHasNotCalled) {
  with_communicators(3, {.deadline = std::chrono::milliseconds(300)}, [](Communicator& comm) {
    std::vector<float> values(10);
    const Span span = span_of(std::span(values));
    try {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
      comm.all_reduce(span, span, ReduceOp::kSum, {.label = "late"}).wait();
      FAIL() << "nobody noticed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("all_reduce #0 \"late\" of 40 bytes was not done within 300 ms"));
      EXPECT_THAT(error.what(), testing::HasSubstr("waited for rank 1 ("));
    }
  });
}

// Rank 0 calls nothing between the start of its collective and rank 1's error.
TEST(SharedCommunicator, DeadlinesPassWithoutAnybodyWaiting) {
  using namespace std::chrono_literals;
  with_communicators(3, {.deadline = 300ms}, [](Communicator& comm) {
    std::vector<float> values(10);
    const Span span = span_of(std::span(values));
    comm.barrier({.deadline = 30s}).wait();
    Work work;
    if (comm.rank() != 1) work = comm.all_reduce(span, span, ReduceOp::kSum, {.label = "forgotten"});
    std::this_thread::sleep_for(comm.rank() == 1 ? 2s : 4s);
    const auto before = std::chrono::steady_clock::now();
    try {
      if (comm.rank() == 1) comm.barrier({.deadline = 30s});
      work.wait();
      FAIL() << "nobody noticed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("all_reduce #1 \"forgotten\" of 40 bytes was not done within 300 ms: "
                                     "waited for rank 1 ("));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - before, 1s);
  });
}

// All have called it, and then do something else for longer than the deadline: that is nobody's failure.
TEST(SharedCommunicator, AnOverdueCollectiveThatAllHaveCalledIsEnded) {
  using namespace std::chrono_literals;
  with_communicators(3, {.deadline = 300ms}, [](Communicator& comm) {
    std::vector<float> values(10, 1.0f);
    const Span span = span_of(std::span(values));
    comm.barrier({.deadline = 30s}).wait();
    Work work = comm.all_reduce(span, span, ReduceOp::kSum);
    std::this_thread::sleep_for(2s);
    work.wait();
    EXPECT_EQ(values[9], 3.0f);
  });
}

TEST(SharedCommunicator, SaysWhoHasLeft) {
  with_communicators(2, {}, [](Communicator& comm) {
    comm.barrier().wait();
    if (comm.rank() == 0) return;
    try {
      comm.barrier().wait();
      FAIL() << "nobody noticed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("waited for rank 0 ("));
      EXPECT_THAT(error.what(), testing::HasSubstr("which has ended its communicator"));
    }
  });
}

}  // namespace
}  // namespace rondo
