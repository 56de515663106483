#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/reduce_case.h"
#include "tests/comm/values.h"

namespace rondo {
namespace {

void every_type_and_operation(Communicator& comm) {
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      if (op == ReduceOp::kAverage && !is_floating(dtype)) continue;
      for (const int64_t count : {int64_t{17}, int64_t{40007}}) {  // with the small call, and in chunks
        check_reduce(comm, {.dtype = dtype, .op = op, .count = count});
        check_reduce(comm, {.dtype = dtype, .op = op, .count = count, .in_place = false, .misaligned = true});
      }
    }
  }
}

void sizes_around_the_number_of_ranks(Communicator& comm) {
  for (int64_t count = 0; count <= 2 * comm.size() + 1; ++count) {
    check_reduce(comm, {.dtype = DType::kF32, .count = count});
    check_reduce(
        comm,
        {.dtype = DType::kI64, .op = ReduceOp::kMax, .count = count, .in_place = false, .misaligned = true});
    check_reduce_scatter(comm, {.dtype = DType::kI16, .count = count}, static_cast<uint64_t>(count));
  }
}

void random_sizes(Communicator& comm) {
  std::mt19937_64 random(7);  // the same on all ranks
  for (int i = 0; i < 40; ++i) {
    const auto count = static_cast<int64_t>(std::exp(std::uniform_real_distribution<>(0, 12)(random)));
    const DType dtype = kAllTypes[random() % std::size(kAllTypes)];
    check_reduce(
        comm,
        {.dtype = dtype, .count = count, .in_place = random() % 2 == 0, .misaligned = random() % 2 == 0});
  }
}

void large_reduction(Communicator& comm) {
  check_reduce(comm, {.count = 700001});
  check_reduce(comm, {.op = ReduceOp::kAverage, .count = 700001, .in_place = false, .misaligned = true});
}

void scales_of_every_type(Communicator& comm) {
  // Factors whose products are exact in the short types, and some that round.
  constexpr double kPairs[][2] = {{0.5, 1}, {1, 3}, {-2, 0.25}, {1.5, 0.1}};
  for (const DType dtype : kAllTypes) {
    for (const auto& [prescale, postscale] : kPairs) {
      for (const int64_t count : {int64_t{100}, int64_t{20011}}) {
        ReduceCase c{.dtype = dtype, .count = count, .prescale = prescale, .postscale = postscale};
        check_reduce(comm, c);
        c.in_place = false;
        c.op = is_floating(dtype) ? ReduceOp::kAverage : ReduceOp::kMin;
        check_reduce(comm, c);
        check_reduce_scatter(comm, c, 3);
        check_reduce_group(comm, c);
      }
    }
  }
}

void scales_of_random_size(Communicator& comm) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 10; ++i) {
    // Integers of 32 bits and factors in float64; an even factor keeps float sums exact.
    const double factor = std::floor(std::uniform_real_distribution<>(-40, 40)(random)) / 4;
    const auto count = static_cast<int64_t>(random() % 9000);
    check_reduce(comm, {.dtype = DType::kI32, .count = count, .prescale = factor, .postscale = -factor});
    check_reduce(comm, {.dtype = DType::kF32, .count = count, .in_place = false, .prescale = factor});
  }
}

void groups_of_five(Communicator& comm) {
  for (const int64_t count : {0, 3, 400, 60000}) {
    for (const DType dtype : {DType::kF32, DType::kI64, DType::kBF16}) {
      for (const bool in_place : {true, false}) {
        check_reduce_group(comm,
                           {.dtype = dtype, .count = count, .in_place = in_place, .misaligned = in_place});
      }
    }
    check_reduce_group(comm, {.dtype = DType::kF16, .op = ReduceOp::kAverage, .count = count});
  }
  comm.all_reduce_group({}, ReduceOp::kSum).wait();
}

void reduce_scatter_of_uneven_blocks(Communicator& comm) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const DType dtype : kAllTypes) {
      for (const int64_t count : {int64_t{50}, int64_t{30011}}) {
        check_reduce_scatter(
            comm, {.dtype = dtype, .count = count, .in_place = seed % 2 == 0, .misaligned = true}, seed);
      }
    }
    check_reduce_scatter(comm, {.op = ReduceOp::kMax, .count = 200003, .in_place = false}, seed);
    check_reduce_scatter(comm, {.op = ReduceOp::kAverage, .count = 200003}, seed);
  }
  // Everything to one rank.
  std::vector<int64_t> counts(static_cast<size_t>(comm.size()), 0);
  counts.back() = 20000;
  std::vector<float> in(20000, 1.0f);
  std::vector<float> out(comm.rank() == comm.size() - 1 ? 20000 : 0);
  comm.reduce_scatter(span_of(std::span(in)), span_of(std::span(out)), counts, ReduceOp::kSum).wait();
  EXPECT_EQ(std::count(out.begin(), out.end(), static_cast<float>(comm.size())),
            static_cast<ptrdiff_t>(out.size()));
}

void short_halves_round_once(Communicator& comm) {
  // 2048 + 1 + ... + 1: in float16 each single addition would be lost.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t count : {int64_t{3}, int64_t{50021}}) {
      const double big = dtype == DType::kF16 ? 2048 : 256;
      Guarded value(dtype, count);
      for (int64_t i = 0; i < count; ++i) value.set(i, comm.rank() == 0 ? big : 1);
      comm.all_reduce(value.span(), value.span(), ReduceOp::kSum).wait();
      Guarded expected(dtype, 1);
      expected.set(0, big + comm.size() - 1);
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) wrong += value.get(i) != expected.get(0);
      EXPECT_EQ(wrong, 0) << dtype_name(dtype) << " of " << count;
    }
  }
}

void averages_of_large_halves_do_not_overflow(Communicator& comm) {
  for (const int64_t count : {int64_t{5}, int64_t{50021}}) {
    Guarded value(DType::kF16, count);
    for (int64_t i = 0; i < count; ++i) value.set(i, 60000);
    comm.all_reduce(value.span(), value.span(), ReduceOp::kAverage).wait();
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) wrong += value.get(i) != 60000;
    EXPECT_EQ(wrong, 0) << count;
    for (int64_t i = 0; i < count; ++i) value.set(i, 60000);
    comm.all_reduce(value.span(), value.span(), ReduceOp::kSum, {.prescale = 0.5 / comm.size()}).wait();
    EXPECT_NEAR(value.get(0), 30000, 16) << count;
  }
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

constexpr ConformanceCase kCases[] = {
    {"EveryTypeAndOperation", every_type_and_operation},
    {"SizesAroundTheNumberOfRanks", sizes_around_the_number_of_ranks},
    {"RandomSizes", random_sizes},
    {"LargeReduction", large_reduction},
    {"ScalesOfEveryType", scales_of_every_type},
    {"ScalesOfRandomSize", scales_of_random_size},
    {"GroupsOfFive", groups_of_five},
    {"ReduceScatterOfUnevenBlocks", reduce_scatter_of_uneven_blocks},
    {"ShortHalvesRoundOnce", short_halves_round_once},
    {"AveragesOfLargeHalvesDoNotOverflow", averages_of_large_halves_do_not_overflow},
    {"SumsAreBitwiseEqual", sums_are_bitwise_equal},
};

}  // namespace

std::span<const ConformanceCase> reduction_cases() {
  return kCases;
}

}  // namespace rondo
