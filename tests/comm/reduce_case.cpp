#include "tests/comm/reduce_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/comm/values.h"

namespace rondo {
namespace {

double round_to(DType dtype, double value) {
  Guarded one(dtype, 1);
  one.set(0, value);
  return one.get(0);
}

// In the accumulation type: float for all floating types but float64; integers cut and saturate.
double scaled(DType dtype, double value, double factor) {
  if (factor == 1.0) return value;
  if (dtype == DType::kF64) return value * factor;
  if (is_floating(dtype)) {
    return static_cast<double>(static_cast<float>(value) * static_cast<float>(factor));
  }
  return with_type(dtype, [&](auto tag) -> double {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T>) {
      const double product = std::trunc(value * factor);
      return std::clamp(product, static_cast<double>(std::numeric_limits<T>::lowest()),
                        static_cast<double>(std::numeric_limits<T>::max()));
    } else {
      return value;
    }
  });
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      break;
  }
  return a * b;
}

constexpr int64_t kPeriod = 28;  // of input_value, in i

CollectiveOptions options_of(const ReduceCase& c) {
  return {.label = "reduce", .prescale = c.prescale, .postscale = c.postscale};
}

void fill(Guarded& buffer, const ReduceCase& c, int rank, int64_t begin, int64_t count) {
  for (int64_t i = 0; i < count; ++i) buffer.set(i, input_value(c, rank, begin + i));
}

// Elements 0.. of `buffer` are elements begin.. of the case's result.
void expect_result(Guarded& buffer, const ReduceCase& c, int size, int64_t begin, int64_t count,
                   int64_t offset = 0) {
  std::array<double, kPeriod> expected{};
  for (int64_t i = 0; i < kPeriod; ++i) expected[static_cast<size_t>(i)] = expected_value(c, size, i);
  int64_t wrong = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (buffer.get(offset + i) == expected[static_cast<size_t>((begin + i) % kPeriod)]) continue;
    if (wrong++ == 0) first = i;
  }
  EXPECT_EQ(wrong, 0) << dtype_name(c.dtype) << " op " << static_cast<int>(c.op) << " count " << c.count
                      << " from " << begin << ", first wrong at " << first << ": "
                      << (first < 0 ? 0 : buffer.get(offset + first)) << " for "
                      << (first < 0 ? 0 : expected_value(c, size, begin + first))
                      << (c.in_place ? " in place" : " out of place") << ", scales " << c.prescale << " and "
                      << c.postscale;
}

void expect_input(Guarded& buffer, const ReduceCase& c, int rank, int64_t begin, int64_t from, int64_t to) {
  int64_t wrong = 0;
  for (int64_t i = from; i < to; ++i) wrong += buffer.get(i) != input_value(c, rank, begin + i);
  EXPECT_EQ(wrong, 0) << "elements of an input were changed";
}

}  // namespace

double input_value(const ReduceCase& c, int rank, int64_t i) {
  if (c.op == ReduceOp::kProduct) return (rank + i) % 4 == 0 ? 2 : 1;
  const bool is_unsigned = c.dtype == DType::kU8 || c.dtype == DType::kU16;
  return static_cast<double>((rank * 3 + i) % 7 - (is_unsigned ? 0 : 3));
}

double expected_value(const ReduceCase& c, int size, int64_t i) {
  double result = scaled(c.dtype, input_value(c, 0, i), c.prescale);
  for (int r = 1; r < size; ++r) {
    result = combined(c.op, result, scaled(c.dtype, input_value(c, r, i), c.prescale));
  }
  if (c.op == ReduceOp::kAverage) {
    result = c.dtype == DType::kF64
                 ? result / size
                 : static_cast<double>(static_cast<float>(result) / static_cast<float>(size));
  }
  return round_to(c.dtype, scaled(c.dtype, result, c.postscale));
}

void check_reduce(Communicator& comm, const ReduceCase& c) {
  Guarded in(c.dtype, c.count, c.misaligned);
  Guarded out(c.dtype, c.count, c.misaligned);
  fill(in, c, comm.rank(), 0, c.count);
  Guarded& result = c.in_place ? in : out;
  comm.all_reduce(in.span(), result.span(), c.op, options_of(c)).wait();
  expect_result(result, c, comm.size(), 0, c.count);
  if (!c.in_place) expect_input(in, c, comm.rank(), 0, 0, c.count);
  in.expect_sentinels();
  out.expect_sentinels();
}

void check_reduce_group(Communicator& comm, const ReduceCase& c) {
  const std::vector<int64_t> counts = random_parts(c.count, 5, static_cast<uint64_t>(c.count));
  std::vector<Guarded> in;
  std::vector<Guarded> out;
  std::vector<SpanPair> pairs;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    in.emplace_back(c.dtype, count, c.misaligned);
    out.emplace_back(c.dtype, count, c.misaligned);
    fill(in.back(), c, comm.rank(), begin, count);
    begin += count;
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    pairs.push_back({in[i].span(), (c.in_place ? in[i] : out[i]).span()});
  }
  Work work = comm.all_reduce_group(pairs, c.op, options_of(c));
  pairs.clear();
  work.wait();
  begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    expect_result(c.in_place ? in[i] : out[i], c, comm.size(), begin, counts[i]);
    if (!c.in_place) expect_input(in[i], c, comm.rank(), begin, 0, counts[i]);
    in[i].expect_sentinels();
    out[i].expect_sentinels();
    begin += counts[i];
  }
}

void check_reduce_scatter(Communicator& comm, const ReduceCase& c, uint64_t seed) {
  const std::vector<int64_t> counts = random_parts(c.count, comm.size(), seed);
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + comm.rank(), int64_t{0});
  const int64_t own = counts[static_cast<size_t>(comm.rank())];
  Guarded in(c.dtype, c.count, c.misaligned);
  Guarded out(c.dtype, own, c.misaligned);
  fill(in, c, comm.rank(), 0, c.count);
  Span result = out.span();
  if (c.in_place) result.data = static_cast<std::byte*>(in.span().data) + before * dtype_size(c.dtype);
  comm.reduce_scatter(in.span(), result, counts, c.op, options_of(c)).wait();
  expect_result(c.in_place ? in : out, c, comm.size(), before, own, c.in_place ? before : 0);
  expect_input(in, c, comm.rank(), 0, 0, before);
  expect_input(in, c, comm.rank(), 0, before + own, c.count);
  if (!c.in_place) expect_input(in, c, comm.rank(), 0, before, before + own);
  in.expect_sentinels();
  out.expect_sentinels();
}

std::vector<int64_t> random_parts(int64_t total, int parts, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> cuts{0, total};
  for (int i = 1; i < parts; ++i) {
    // One cut in four falls on another: an empty part.
    const bool repeats = random() % 4 == 0;
    cuts.push_back(repeats ? cuts[random() % cuts.size()]
                           : static_cast<int64_t>(random() % static_cast<uint64_t>(total + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<int64_t> counts;
  for (int i = 0; i < parts; ++i) {
    counts.push_back(cuts[static_cast<size_t>(i) + 1] - cuts[static_cast<size_t>(i)]);
  }
  return counts;
}

}  // namespace rondo
