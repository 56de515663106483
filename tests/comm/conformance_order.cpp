// Asynchronous calls, process sets, and what else is not one call's values.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/reduce_case.h"
#include "tests/comm/values.h"

namespace rondo {
namespace {

void barrier_separates_before_and_after(Communicator& comm) {
  using Clock = std::chrono::steady_clock;  // one clock for all processes of a host
  for (int late = 0; late < comm.size(); ++late) {
    if (comm.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int64_t before = Clock::now().time_since_epoch().count();
    comm.barrier({.label = "line"}).wait();
    const int64_t after = Clock::now().time_since_epoch().count();
    int64_t latest = before;
    int64_t earliest = after;
    const Span latest_span = span_of(std::span(&latest, 1));
    const Span earliest_span = span_of(std::span(&earliest, 1));
    comm.all_reduce(latest_span, latest_span, ReduceOp::kMax).wait();
    comm.all_reduce(earliest_span, earliest_span, ReduceOp::kMin).wait();
    EXPECT_GE(earliest, latest);
  }
}

void many_in_flight(Communicator& comm) {
  constexpr int kCalls = 60;
  std::vector<std::vector<float>> buffers;
  for (int k = 0; k < kCalls; ++k) {
    buffers.emplace_back(static_cast<size_t>(k % 3 == 0 ? 20000 + k : k),
                         static_cast<float>(comm.rank() + k));
  }
  std::vector<Work> works;
  for (auto& buffer : buffers) {
    const Span span = span_of(std::span(buffer));
    works.push_back(comm.all_reduce(span, span, ReduceOp::kSum));
    comm.progress();
  }
  if (comm.rank() % 2 == 0) std::reverse(works.begin(), works.end());
  for (Work& work : works) work.wait();
  const int size = comm.size();
  for (int k = 0; k < kCalls; ++k) {
    const auto expected = static_cast<float>(size * (size - 1) / 2 + size * k);
    const auto& buffer = buffers[static_cast<size_t>(k)];
    EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [&](float v) { return v == expected; }))
        << "call " << k;
  }
}

void more_than_the_limit_in_flight(Communicator& comm) {
  std::vector<int32_t> values(1500, 1);
  std::vector<Work> works;
  for (int32_t& value : values) {
    const Span span = span_of(std::span(&value, 1));
    works.push_back(comm.all_reduce(span, span, ReduceOp::kSum));
  }
  for (Work& work : works) work.wait();
  EXPECT_EQ(std::count(values.begin(), values.end(), comm.size()), 1500);
}

void ready_becomes_true(Communicator& comm) {
  std::vector<float> values(50000, 1.0f);
  const Span span = span_of(std::span(values));
  Work work = comm.all_reduce(span, span, ReduceOp::kSum);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!work.ready() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_TRUE(work.ready());
  EXPECT_EQ(values.back(), static_cast<float>(comm.size()));
}

void dropped_work_still_happens(Communicator& comm) {
  std::vector<float> values(30000, 1.0f);
  const Span span = span_of(std::span(values));
  { const Work dropped = comm.all_reduce(span, span, ReduceOp::kSum); }
  EXPECT_EQ(values.front(), static_cast<float>(comm.size()));
  Work moved = comm.barrier();
  moved = comm.all_reduce(span, span, ReduceOp::kMax);
  moved.wait();
  moved.wait();  // an empty Work is done
  EXPECT_TRUE(moved.ready());
}

void labels_may_repeat(Communicator& comm) {
  // They name calls in messages and nothing else: calls are told apart by their order.
  std::vector<int32_t> a(10, comm.rank());
  std::vector<int32_t> b(30000, 1);
  const Span a_span = span_of(std::span(a));
  const Span b_span = span_of(std::span(b));
  Work first = comm.all_reduce(a_span, a_span, ReduceOp::kMax, {.label = "same"});
  Work second = comm.all_reduce(b_span, b_span, ReduceOp::kSum, {.label = "same"});
  second.wait();
  first.wait();
  EXPECT_EQ(a.front(), comm.size() - 1);
  EXPECT_EQ(b.back(), comm.size());
}

void barrier_with_calls_in_flight(Communicator& comm) {
  std::vector<float> values(80000, 1.0f);
  const Span span = span_of(std::span(values));
  Work pending = comm.all_reduce(span, span, ReduceOp::kSum);
  comm.barrier().wait();
  pending.wait();
  EXPECT_EQ(values.back(), static_cast<float>(comm.size()));
}

void sets_do_not_wait_for_each_other(Communicator& comm) {
  if (comm.size() < 4) return;
  const auto half = comm.split(comm.rank() % 2, 0);
  using Clock = std::chrono::steady_clock;
  comm.barrier().wait();
  const auto begin = Clock::now();
  constexpr auto kNap = std::chrono::milliseconds(700);
  if (comm.rank() == 0) std::this_thread::sleep_for(kNap);
  half->barrier().wait();
  const auto time = Clock::now() - begin;
  if (comm.rank() % 2 == 0) {
    EXPECT_GE(time, kNap * 9 / 10);  // clocks of the ranks start at slightly different moments
  } else {
    EXPECT_LT(time, kNap);
  }
  comm.barrier().wait();
}

void groups_and_moves_on_sets(Communicator& comm) {
  const auto half = comm.split(comm.rank() % 2, comm.rank());
  check_reduce_group(*half, {.dtype = DType::kF32, .count = 30000, .in_place = false});
  check_reduce_scatter(*half, {.dtype = DType::kF16, .op = ReduceOp::kAverage, .count = 9000}, 5);
  check_reduce(comm, {.dtype = DType::kF64, .count = 5000});
  std::vector<int32_t> mine(1000, comm.rank());
  std::vector<int32_t> all(1000 * static_cast<size_t>(half->size()));
  half->all_gather(span_of(std::span(mine)), span_of(std::span(all))).wait();
  for (size_t i = 0; i < all.size(); i += 100) {
    ASSERT_EQ(all[i], static_cast<int>(i / 1000) * 2 + comm.rank() % 2);
  }
}

void many_sets_of_the_same_ranks(Communicator& comm) {
  // Made and dropped again and again, in any order of their members.
  for (int i = 0; i < 20; ++i) {
    const auto reversed = comm.split(0, -comm.rank());
    const auto twin = comm.split(0, 0);
    EXPECT_EQ(reversed->rank(), comm.size() - 1 - comm.rank());
    std::vector<int32_t> value(5000, reversed->rank());
    const Span span = span_of(std::span(value));
    Work a = i % 2 == 0 ? twin->barrier() : reversed->broadcast(span, 0);
    Work b = i % 2 == 0 ? reversed->broadcast(span, 0) : twin->barrier();
    a.wait();
    b.wait();
    EXPECT_EQ(std::count(value.begin(), value.end(), 0), 5000);
  }
}

void split_into_even_and_odd(Communicator& comm) {
  const int color = comm.rank() % 2;
  const auto half = comm.split(color, -comm.rank());  // in reverse order
  ASSERT_NE(half, nullptr);
  const int expected_size = (comm.size() + 1 - color) / 2;
  ASSERT_EQ(half->size(), expected_size);
  EXPECT_EQ(half->rank(), expected_size - 1 - comm.rank() / 2);
  EXPECT_EQ(half->topology().host_of.size(), static_cast<size_t>(expected_size));
  std::vector<int32_t> mine(20000, comm.rank());
  std::vector<int32_t> all(20000, comm.rank());
  const Span mine_span = span_of(std::span(mine));
  const Span all_span = span_of(std::span(all));
  // On both at once, started in different order on the two halves.
  Work a = color == 0 ? half->all_reduce(mine_span, mine_span, ReduceOp::kSum)
                      : comm.all_reduce(all_span, all_span, ReduceOp::kSum);
  Work b = color == 0 ? comm.all_reduce(all_span, all_span, ReduceOp::kSum)
                      : half->all_reduce(mine_span, mine_span, ReduceOp::kSum);
  a.wait();
  b.wait();
  int32_t expected = 0;
  for (int r = color; r < comm.size(); r += 2) expected += r;
  EXPECT_EQ(std::count(mine.begin(), mine.end(), expected), 20000);
  EXPECT_EQ(std::count(all.begin(), all.end(), comm.size() * (comm.size() - 1) / 2), 20000);
  const auto single = half->split(half->rank(), 0);
  ASSERT_EQ(single->size(), 1);
  check_reduce(*single, {.op = ReduceOp::kAverage, .count = 1000, .in_place = false});
}

void split_with_ranks_left_out(Communicator& comm) {
  const auto first = comm.split(comm.rank() == 0 ? 4 : -1, 0);
  EXPECT_EQ(first != nullptr, comm.rank() == 0);
  const auto all = comm.split(0, 0);
  ASSERT_EQ(all->size(), comm.size());
  EXPECT_EQ(all->rank(), comm.rank());
  check_reduce(*all, {.count = 12345});
  if (first != nullptr) first->barrier().wait();
}

void allocated_memory_is_zeroed(Communicator& comm) {
  const Buffer buffer = comm.allocate(4 * 10000);
  ASSERT_EQ(buffer.bytes(), 40000);
  float* values = buffer.as<float>();
  EXPECT_EQ(std::count(values, values + 10000, 0.0f), 10000);
  std::fill(values, values + 10000, 2.0f);
  const Span span{buffer.data(), 10000, DType::kF32};
  comm.all_reduce(span, span, ReduceOp::kAverage).wait();
  EXPECT_EQ(std::count(values, values + 10000, 2.0f), 10000);
}

void topology_is_consistent(Communicator& comm) {
  const Topology& topology = comm.topology();
  ASSERT_EQ(topology.host_of.size(), static_cast<size_t>(comm.size()));
  EXPECT_GE(topology.hosts(), 1);
  EXPECT_LT(topology.local_rank, topology.local_size);
  const int host = topology.host_of[static_cast<size_t>(comm.rank())];
  EXPECT_EQ(std::count(topology.host_of.begin(), topology.host_of.end(), host), topology.local_size);
  EXPECT_FALSE(comm.name().empty());
  EXPECT_NE(rank_name(topology, comm.rank()).find(topology.host_names[static_cast<size_t>(host)]),
            std::string::npos);
}

constexpr ConformanceCase kCases[] = {
    {"BarrierSeparatesBeforeAndAfter", barrier_separates_before_and_after},
    {"BarrierWithCallsInFlight", barrier_with_calls_in_flight},
    {"ManyInFlight", many_in_flight},
    {"MoreThanTheLimitInFlight", more_than_the_limit_in_flight},
    {"ReadyBecomesTrue", ready_becomes_true},
    {"DroppedWorkStillHappens", dropped_work_still_happens},
    {"LabelsMayRepeat", labels_may_repeat},
    {"SplitIntoEvenAndOdd", split_into_even_and_odd},
    {"SplitWithRanksLeftOut", split_with_ranks_left_out},
    {"SetsDoNotWaitForEachOther", sets_do_not_wait_for_each_other},
    {"GroupsAndMovesOnSets", groups_and_moves_on_sets},
    {"ManySetsOfTheSameRanks", many_sets_of_the_same_ranks},
    {"AllocatedMemoryIsZeroed", allocated_memory_is_zeroed},
    {"TopologyIsConsistent", topology_is_consistent},
};

}  // namespace

std::span<const ConformanceCase> order_cases() {
  return kCases;
}

}  // namespace rondo
