#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/comm/shared_ranks.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

SharedWorldOptions quick(int size) {
  SharedWorldOptions options{.heartbeat = 50ms, .silence = 700ms};
  for (int r = 0; r < size; ++r) options.names.push_back("rank " + std::to_string(r) + " (a)");
  return options;
}

// Reduces for ever; returns the error that ends it.
std::string reduce_until_error(SharedGroup& group, const std::function<void(int)>& each_step) {
  std::vector<float> values(50000);
  const Span span = span_of(std::span(values));
  SharedCollective collective(group);
  try {
    for (int step = 0;; ++step) {
      each_step(step);
      collective.start({.transfer = Transfer::kAllReduce, .in = span, .out = span});
      finish(group, collective);
    }
  } catch (const PeerError& error) {
    return error.what();
  }
}

void lose_rank_1(int signal, const std::string& part, Clock::duration within) {
  fork_ranks(3,
             [&](Bootstrap& ranks) {
               const auto world = SharedWorld::join(ranks, quick(ranks.size()));
               const auto group = make_group(world, ranks);
               Clock::time_point last;
               const auto step = [&](int number) {
                 last = Clock::now();
                 if (number == 20 && ranks.rank() == 1) std::raise(signal);
               };
               EXPECT_THAT(reduce_until_error(*group, step), AllOf(HasSubstr("rank 1 (a)"), HasSubstr(part)));
               EXPECT_LT(Clock::now() - last, within);
             },
             {1});
}

TEST(SharedFault, KilledRankIsNoticedAtOnce) {
  lose_rank_1(SIGKILL, "its process is gone", 3s);
}

TEST(SharedFault, StoppedRankIsNoticedByItsSilence) {
  lose_rank_1(SIGSTOP, "no sign of life", 6s);
}

TEST(SharedFault, PublishedFailureReachesSleepers) {
  fork_ranks(3, [](Bootstrap& ranks) {
    const auto world = SharedWorld::join(ranks, quick(ranks.size()));
    const auto group = make_group(world, ranks);
    if (ranks.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      world->publish("the disk is full");
      world->publish("and something else");
    }
    const std::string text = reduce_until_error(*group, [](int) {});
    EXPECT_EQ(text, "rank 2 (a): the disk is full");
  });
}

TEST(SharedFault, WaitingCostsLittle) {
  fork_ranks(2, [](Bootstrap& ranks) {
    const auto world = SharedWorld::join(ranks);
    const auto group = make_group(world, ranks);
    if (ranks.rank() == 1) std::this_thread::sleep_for(400ms);
    const auto cpu_ms = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
             (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
    };
    const auto before = cpu_ms();
    run(*group, {});
    EXPECT_LT(cpu_ms() - before, 100);
  });
}

TEST(SharedFault, LeavingIsSeen) {
  fork_ranks(2, [](Bootstrap& ranks) {
    auto world = SharedWorld::join(ranks, quick(ranks.size()));
    EXPECT_FALSE(world->has_left(0));
    run(*make_group(world, ranks), {});
    if (ranks.rank() == 0) {
      world.reset();
      return;
    }
    const auto end = Clock::now() + 5s;
    while (!world->has_left(0) && Clock::now() < end) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(world->has_left(0));
    std::this_thread::sleep_for(1s);
    EXPECT_FALSE(world->failed());
  });
}

}  // namespace
}  // namespace rondo
