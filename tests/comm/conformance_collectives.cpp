#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/values.h"

namespace rondo {
namespace {

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                ReduceOp::kProduct};

// Small integers, so that every sum is exact in every type; for products mostly ones.
double input_value(ReduceOp op, DType dtype, int rank, int64_t i) {
  if (op == ReduceOp::kProduct) return (rank + i) % 4 == 0 ? 2 : 1;
  const bool is_unsigned = dtype == DType::kU8 || dtype == DType::kU16;
  return static_cast<double>((rank * 3 + i) % 7 - (is_unsigned ? 0 : 3));
}

double expected_value(ReduceOp op, DType dtype, int size, int64_t i) {
  double result = input_value(op, dtype, 0, i);
  for (int r = 1; r < size; ++r) {
    const double next = input_value(op, dtype, r, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += next;
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kProduct:
        result *= next;
        break;
    }
  }
  if (op != ReduceOp::kAverage) return result;
  // In the accumulation type, then rounded to the element's.
  Guarded rounded(dtype, 1);
  rounded.set(0,
              dtype == DType::kF64 ? result / size : static_cast<float>(result) / static_cast<float>(size));
  return rounded.get(0);
}

struct ReduceCase {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;
  bool in_place = true;
  bool misaligned = false;
};

void check_reduce(Communicator& comm, const ReduceCase& c) {
  Guarded in(c.dtype, c.count, c.misaligned);
  Guarded out(c.dtype, c.count, c.misaligned);
  for (int64_t i = 0; i < c.count; ++i) in.set(i, input_value(c.op, c.dtype, comm.rank(), i));
  Guarded& result = c.in_place ? in : out;
  comm.all_reduce(in.span(), result.span(), c.op, {.label = "reduce"}).wait();
  int64_t wrong = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < c.count; ++i) {
    const bool input_kept = c.in_place || in.get(i) == input_value(c.op, c.dtype, comm.rank(), i);
    if (result.get(i) == expected_value(c.op, c.dtype, comm.size(), i) && input_kept) continue;
    if (wrong++ == 0) first = i;
  }
  EXPECT_EQ(wrong, 0) << dtype_name(c.dtype) << " op " << static_cast<int>(c.op) << " count " << c.count
                      << " first wrong at " << first << (c.in_place ? " in place" : " out of place");
  in.expect_sentinels();
  out.expect_sentinels();
}

void every_type_and_operation(Communicator& comm) {
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      if (op == ReduceOp::kAverage && !is_floating(dtype)) continue;
      for (const int64_t count : {int64_t{17}, int64_t{40007}}) {  // with the small call, and round the ring
        check_reduce(comm, {dtype, op, count, true, false});
        check_reduce(comm, {dtype, op, count, false, true});
      }
    }
  }
}

void sizes_around_the_number_of_ranks(Communicator& comm) {
  for (int64_t count = 0; count <= 2 * comm.size() + 1; ++count) {
    check_reduce(comm, {DType::kF32, ReduceOp::kSum, count, true, false});
    check_reduce(comm, {DType::kI64, ReduceOp::kMax, count, false, true});
  }
}

void random_sizes(Communicator& comm) {
  std::mt19937_64 random(7);  // the same on all ranks
  for (int i = 0; i < 40; ++i) {
    const auto count = static_cast<int64_t>(std::exp(std::uniform_real_distribution<>(0, 12)(random)));
    const DType dtype = kAllTypes[random() % std::size(kAllTypes)];
    check_reduce(comm, {dtype, ReduceOp::kSum, count, random() % 2 == 0, random() % 2 == 0});
  }
}

void large_reduction(Communicator& comm) {
  check_reduce(comm, {DType::kF32, ReduceOp::kSum, 700001, true, false});
  check_reduce(comm, {DType::kF32, ReduceOp::kAverage, 700001, false, true});
}

void short_halves_round_once(Communicator& comm) {
  // 2048 + 1 + ... + 1: in float16 each single addition would be lost.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const double big = dtype == DType::kF16 ? 2048 : 256;
    Guarded value(dtype, 3);
    for (int64_t i = 0; i < 3; ++i) value.set(i, comm.rank() == 0 ? big : 1);
    comm.all_reduce(value.span(), value.span(), ReduceOp::kSum).wait();
    Guarded expected(dtype, 1);
    expected.set(0, big + comm.size() - 1);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(value.get(i), expected.get(0));
  }
}

void broadcast_from_every_root(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    for (const int64_t count : {0, 1, 5, 1000, 33333, 200003}) {
      for (const DType dtype : {DType::kU8, DType::kF32}) {
        Guarded buffer(dtype, count, count % 2 == 1);
        for (int64_t i = 0; i < count; ++i)
          buffer.set(i, comm.rank() == root ? static_cast<double>(i % 101) : 7);
        comm.broadcast(buffer.span(), root, {.label = "weights"}).wait();
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) wrong += buffer.get(i) != static_cast<double>(i % 101);
        EXPECT_EQ(wrong, 0) << "root " << root << " count " << count;
        buffer.expect_sentinels();
      }
    }
  }
}

void check_gather(Communicator& comm, const std::vector<int64_t>& counts, DType dtype, bool in_place) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t own = counts[static_cast<size_t>(comm.rank())];
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + comm.rank(), int64_t{0});
  Guarded in(dtype, own, true);
  Guarded out(dtype, total, true);
  const auto value = [](int rank, int64_t i) { return static_cast<double>((rank * 31 + i) % 101); };
  for (int64_t i = 0; i < own; ++i) {
    in.set(i, value(comm.rank(), i));
    if (in_place) out.set(before + i, value(comm.rank(), i));
  }
  ConstSpan input = in.span();
  if (in_place) input.data = static_cast<std::byte*>(out.span().data) + before * dtype_size(dtype);
  comm.all_gather_v(input, out.span(), counts, {.label = "gather"}).wait();
  int64_t at = 0;
  int64_t wrong = 0;
  for (int r = 0; r < comm.size(); ++r) {
    for (int64_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) wrong += out.get(at++) != value(r, i);
  }
  EXPECT_EQ(wrong, 0) << total << " elements of " << dtype_name(dtype) << (in_place ? " in place" : "");
  in.expect_sentinels();
  out.expect_sentinels();
}

void all_gather_of_uneven_blocks(Communicator& comm) {
  std::mt19937_64 random(11);
  for (const int64_t scale : {0, 1, 3, 500, 60000}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<int64_t> counts;
      for (int r = 0; r < comm.size(); ++r) {
        counts.push_back(scale == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(scale + 1)));
      }
      check_gather(comm, counts, DType::kF32, repeat == 1);
      check_gather(comm, counts, DType::kU8, repeat == 2);
    }
  }
  std::vector<int64_t> one_only(static_cast<size_t>(comm.size()), 0);
  one_only.back() = 50000;
  check_gather(comm, one_only, DType::kI64, false);
}

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

std::vector<float> awkward_floats(int rank, int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 100);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), static_cast<int>(random() % 30));
  }
  return values;
}

void sums_are_bitwise_equal(Communicator& comm) {
  for (const int64_t count : {5, 700, 9001, 150001}) {
    const std::vector<float> in = awkward_floats(comm.rank(), count);
    std::vector<float> first(in.size());
    std::vector<float> second = in;
    comm.all_reduce(span_of(std::span(in)), span_of(std::span(first)), ReduceOp::kSum).wait();
    if (comm.rank() == comm.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const Span again = span_of(std::span(second));
    comm.all_reduce(again, again, ReduceOp::kSum).wait();
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0) << "count " << count;
    std::vector<float> of_root = first;
    comm.broadcast(span_of(std::span(of_root)), 0).wait();
    EXPECT_EQ(std::memcmp(first.data(), of_root.data(), first.size() * sizeof(float)), 0)
        << "count " << count;
    // And right: against float64, within the rounding of size additions.
    std::vector<double> exact(in.size(), 0.0);
    std::vector<double> magnitude(in.size(), 0.0);
    for (int r = 0; r < comm.size(); ++r) {
      const std::vector<float> theirs = awkward_floats(r, count);
      for (size_t i = 0; i < exact.size(); ++i) {
        exact[i] += static_cast<double>(theirs[i]);
        magnitude[i] += std::abs(static_cast<double>(theirs[i]));
      }
    }
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(first[i], exact[i], magnitude[i] * comm.size() * 0x1p-23) << i;
    }
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
  check_reduce(*single, {DType::kF32, ReduceOp::kAverage, 1000, false, false});
}

void split_with_ranks_left_out(Communicator& comm) {
  const auto first = comm.split(comm.rank() == 0 ? 4 : -1, 0);
  EXPECT_EQ(first != nullptr, comm.rank() == 0);
  const auto all = comm.split(0, 0);
  ASSERT_EQ(all->size(), comm.size());
  EXPECT_EQ(all->rank(), comm.rank());
  check_reduce(*all, {DType::kF32, ReduceOp::kSum, 12345, true, false});
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
    {"EveryTypeAndOperation", every_type_and_operation},
    {"SizesAroundTheNumberOfRanks", sizes_around_the_number_of_ranks},
    {"RandomSizes", random_sizes},
    {"LargeReduction", large_reduction},
    {"ShortHalvesRoundOnce", short_halves_round_once},
    {"BroadcastFromEveryRoot", broadcast_from_every_root},
    {"AllGatherOfUnevenBlocks", all_gather_of_uneven_blocks},
    {"BarrierSeparatesBeforeAndAfter", barrier_separates_before_and_after},
    {"ManyInFlight", many_in_flight},
    {"MoreThanTheLimitInFlight", more_than_the_limit_in_flight},
    {"ReadyBecomesTrue", ready_becomes_true},
    {"DroppedWorkStillHappens", dropped_work_still_happens},
    {"SumsAreBitwiseEqual", sums_are_bitwise_equal},
    {"SplitIntoEvenAndOdd", split_into_even_and_odd},
    {"SplitWithRanksLeftOut", split_with_ranks_left_out},
    {"AllocatedMemoryIsZeroed", allocated_memory_is_zeroed},
    {"TopologyIsConsistent", topology_is_consistent},
};

}  // namespace

std::span<const ConformanceCase> collective_cases() {
  return kCases;
}

}  // namespace rondo
