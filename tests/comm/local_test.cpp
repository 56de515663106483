#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/comm/conformance.h"
#include "tests/support/patience.h"

namespace rondo {
namespace {

using Parameter = std::tuple<ConformanceCase, int>;

class LocalConformance : public testing::TestWithParam<Parameter> {};

TEST_P(LocalConformance, Case) {
  const auto& [conformance, ranks] = GetParam();
  run_ranks(ranks, [run = conformance.run](Communicator& comm) { run(comm); },
            {.deadline = test::patience(std::chrono::seconds(30))});
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

constexpr int kRanks[] = {1, 2, 3, 4, 5, 8};
INSTANTIATE_TEST_SUITE_P(Reductions, LocalConformance,
                         testing::Combine(testing::ValuesIn(reduction_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Moves, LocalConformance,
                         testing::Combine(testing::ValuesIn(move_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Order, LocalConformance,
                         testing::Combine(testing::ValuesIn(order_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Arguments, LocalConformance,
                         testing::Combine(testing::ValuesIn(argument_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Random, LocalConformance,
                         testing::Combine(testing::ValuesIn(random_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Errors, LocalConformance,
                         testing::Combine(testing::ValuesIn(error_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Agreement, LocalConformance,
                         testing::Combine(testing::ValuesIn(agreement_cases()), testing::ValuesIn(kRanks)),
                         parameter_name);

class SelfConformance : public testing::TestWithParam<ConformanceCase> {};

TEST_P(SelfConformance, Case) {
  const auto device = make_cpu_device(1);
  const auto comm = make_self_communicator(*device);
  GetParam().run(*comm);
}

const auto case_name = [](const testing::TestParamInfo<ConformanceCase>& info) {
  return std::string(info.param.name);
};
INSTANTIATE_TEST_SUITE_P(Reductions, SelfConformance, testing::ValuesIn(reduction_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Moves, SelfConformance, testing::ValuesIn(move_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Order, SelfConformance, testing::ValuesIn(order_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Arguments, SelfConformance, testing::ValuesIn(argument_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Random, SelfConformance, testing::ValuesIn(random_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Errors, SelfConformance, testing::ValuesIn(error_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Agreement, SelfConformance, testing::ValuesIn(agreement_cases()), case_name);

TEST(RunRanks, RethrowsTheFirstErrorAndWakesTheOthers) {
  try {
    run_ranks(3, [](Communicator& comm) {
      if (comm.rank() == 1) throw FileError("lost");
      comm.barrier().wait();
    });
    FAIL() << "nothing was thrown";
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "lost");
  }
}

TEST(RunRanks, EndsRanksThatWaitForEver) {
  const auto late = [](Communicator& comm) {
    if (comm.rank() == 0) comm.barrier().wait();
  };
  EXPECT_THROW(run_ranks(2, late, {}, std::chrono::milliseconds(100)), PeerError);
}

TEST(LocalCommunicator, PlaysHosts) {
  const auto check = [](Communicator& comm) {
    EXPECT_EQ(comm.topology().hosts(), 2);
    EXPECT_EQ(comm.topology().local_size, comm.rank() == 1 ? 1 : 2);
    EXPECT_EQ(comm.topology().local_rank, comm.rank() == 2 ? 1 : 0);
    EXPECT_EQ(rank_name(comm.topology(), 1), "rank 1 (beta)");
  };
  run_ranks(3, check, {.hosts = {"alpha", "beta", "alpha"}});
}

}  // namespace
}  // namespace rondo
