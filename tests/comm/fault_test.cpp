#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/patience.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const std::chrono::duration<double> kSoon = rondo::test::patience(std::chrono::seconds(10));

struct Job {
  int status = 0;
  std::string output;
  std::chrono::duration<double> time{0};
};

Job run_victims(const std::string& arguments) {
  const auto limit =
      std::chrono::duration_cast<std::chrono::seconds>(rondo::test::patience(std::chrono::seconds(30)));
  const std::string command = "timeout -k 1 " + std::to_string(limit.count()) +
                              std::string(" " RONDO_MPIRUN " -np 3 --oversubscribe " RONDO_VICTIM " ") +
                              arguments + " 2>&1";
  Job job;
  const auto begin = Clock::now();
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "cannot run " << command;
    return job;
  }
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr) job.output += part.data();
  job.status = pclose(pipe);
  job.time = Clock::now() - begin;
  return job;
}

class Fault : public testing::TestWithParam<const char*> {};

TEST_P(Fault, NoneHappens) {
  const Job job = run_victims(std::string("none ") + GetParam());
  EXPECT_EQ(job.status, 0) << job.output;
}

TEST_P(Fault, KilledRankEndsTheJob) {
  const Job job = run_victims(std::string("kill ") + GetParam());
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.time, kSoon) << job.output;
  EXPECT_THAT(job.output, testing::Not(HasSubstr("nobody noticed")));
}

TEST_P(Fault, ReasonOfAThrowingRankReachesTheOthers) {
  const Job job = run_victims(std::string("throw ") + GetParam());
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.time, kSoon);
  EXPECT_THAT(job.output, AllOf(HasSubstr("victim: rank 1 ("), HasSubstr("): /data/part-7: read failed")));
}

TEST_P(Fault, StoppedRankIsNoticedByTheDeadline) {
  const Job job = run_victims(std::string("stop ") + GetParam());
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.time, kSoon);
  EXPECT_THAT(job.output,
              AllOf(HasSubstr("all_reduce #2"), HasSubstr("\"series\""), HasSubstr("waited for rank")));
}

TEST(Heartbeat, StoppedRankIsNoticedLongBeforeTheDeadline) {
  const Job job = run_victims("stop patient");
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.time, kSoon);
  EXPECT_THAT(job.output, HasSubstr("no sign of life from rank 1 ("));
}

INSTANTIATE_TEST_SUITE_P(Progress, Fault, testing::Values("inline", "thread", "messages"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace

int main(int argc, char** argv) {
  // mpirun refuses root and more ranks than cores unless told otherwise.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
