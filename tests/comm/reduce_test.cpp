#include "runtime/comm/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/comm/half.h"
#include "runtime/comm/reduce_kernels.h"
#include "tests/comm/values.h"

namespace rondo {
namespace {

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

double value(ReduceOp op, DType dtype, int rank, int64_t i) {
  if (op == ReduceOp::kProduct) return (rank + i) % 4 == 0 ? 2 : 1;
  const bool is_unsigned = dtype == DType::kU8 || dtype == DType::kU16;
  return static_cast<double>((rank * 3 + i) % 7 - (is_unsigned ? 0 : 3));
}

double merge(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      break;
  }
  return a + b;
}

// `in_place`: the outputs are the inputs.
void check(DType dtype, ReduceOp op, int ranks, int outputs, int64_t count, bool in_place) {
  std::vector<Guarded> in;
  std::vector<Guarded> out;
  for (int r = 0; r < ranks; ++r) {
    in.emplace_back(dtype, count, r % 2 == 1);
    for (int64_t i = 0; i < count; ++i) in.back().set(i, value(op, dtype, r, i));
  }
  for (int k = 0; k < outputs; ++k) out.emplace_back(dtype, count, k % 2 == 0);
  std::vector<const void*> from;
  std::vector<void*> to;
  for (Guarded& one : in) from.push_back(one.span().data);
  for (Guarded& one : in_place ? in : out) {
    if (static_cast<int>(to.size()) < outputs) to.push_back(one.span().data);
  }
  reduce({.dtype = dtype, .op = op}, from, to, count);
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    double expected = value(op, dtype, 0, i);
    for (int r = 1; r < ranks; ++r) expected = merge(op, expected, value(op, dtype, r, i));
    for (int k = 0; k < outputs; ++k) {
      wrong += (in_place ? in : out)[static_cast<size_t>(k)].get(i) != expected;
    }
  }
  EXPECT_EQ(wrong, 0) << dtype_name(dtype) << " op " << static_cast<int>(op) << " ranks " << ranks
                      << " outputs " << outputs << " count " << count;
  for (Guarded& one : in) one.expect_sentinels();
  for (Guarded& one : out) one.expect_sentinels();
}

TEST(Reduce, EveryTypeOperationAndNumberOfRanks) {
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      for (const int ranks : {1, 2, 3, 5}) {
        for (const int64_t count : {0, 1, 7, 33, 1024, 2500}) {
          check(dtype, op, ranks, 1, count, false);
          check(dtype, op, ranks, ranks, count, true);
          check(dtype, op, ranks, 2 * ranks, count, false);
        }
      }
    }
  }
}

// Every pattern of 16 bits through every variant of the loops, against half.h.
void check_halves(FindReduceKernel find) {
  constexpr int64_t kCount = 65536;
  std::vector<uint16_t> patterns(kCount);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  std::vector<uint16_t> others(kCount);
  for (size_t i = 0; i < others.size(); ++i) others[i] = static_cast<uint16_t>(i * 40503u + 77u);
  const auto compare = [&]<class Half>(DType dtype, Half) {
    std::vector<uint16_t> sums(kCount);
    const void* inputs[] = {patterns.data(), others.data()};
    void* outputs[] = {sums.data()};
    find(dtype, ReduceOp::kSum)({inputs, 2, outputs, 1, kCount});
    int64_t wrong = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      Half a, b, s;
      a.bits = patterns[i];
      b.bits = others[i];
      s.bits = sums[i];
      const auto exact = static_cast<float>(a) + static_cast<float>(b);
      wrong += std::isnan(exact) ? !std::isnan(static_cast<float>(s)) : Half(exact).bits != s.bits;
    }
    EXPECT_EQ(wrong, 0) << dtype_name(dtype);
  };
  compare(DType::kF16, half::float16{});
  compare(DType::kBF16, half::bfloat16{});
}

TEST(Reduce, HalvesAgreeWithTheirDefinition) {
  check_halves(reduce_baseline::find);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) check_halves(reduce_avx2::find);
#endif
}

TEST(Reduce, ScalesFloatsInTheirAccumulationType) {
  const std::vector<float> a{1, 2, 3, 4, 5};
  const std::vector<float> b{10, 20, 30, 40, 50};
  std::vector<float> out(5);
  const void* inputs[] = {a.data(), b.data()};
  void* outputs[] = {out.data()};
  reduce({.prescale = 0.1, .postscale = 3, .divisor = 2}, inputs, outputs, 5);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(out[i], (a[i] * 0.1f + b[i] * 0.1f) / 2.0f * 3.0f);

  std::vector<half::float16> h(3, half::float16(2048.0f));
  std::vector<half::float16> sum(3);
  const void* halves[] = {h.data(), h.data(), h.data()};
  void* result[] = {sum.data()};
  reduce({.dtype = DType::kF16, .prescale = 100, .postscale = 0.01}, halves, result, 3);  // 614400 between
  for (const half::float16 one : sum) EXPECT_EQ(static_cast<float>(one), 6144.0f);
}

TEST(Reduce, ScalesIntegersInDouble) {
  const std::vector<int64_t> a{int64_t{1} << 40, 7, -7, std::numeric_limits<int64_t>::max()};
  std::vector<int64_t> out(4);
  const void* inputs[] = {a.data()};
  void* outputs[] = {out.data()};
  reduce({.dtype = DType::kI64, .postscale = 0.5}, inputs, outputs, 4);
  EXPECT_EQ(out, (std::vector<int64_t>{int64_t{1} << 39, 3, -3, int64_t{1} << 62}));
  reduce({.dtype = DType::kI64, .postscale = 1e30}, inputs, outputs, 4);
  EXPECT_EQ(out[1], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(out[2], std::numeric_limits<int64_t>::lowest());
  const std::vector<uint8_t> small{200, 100};
  std::vector<uint8_t> narrow(2);
  const void* bytes[] = {small.data()};
  void* to[] = {narrow.data()};
  reduce({.dtype = DType::kU8, .prescale = 2}, bytes, to, 2);
  EXPECT_EQ(narrow, (std::vector<uint8_t>{255, 200}));
}

TEST(Reduce, IntegersWrap) {
  const std::vector<int8_t> a{127, -128};
  std::vector<int8_t> out(2);
  const void* inputs[] = {a.data(), a.data()};
  void* outputs[] = {out.data()};
  reduce({.dtype = DType::kI8}, inputs, outputs, 2);
  EXPECT_EQ(out, (std::vector<int8_t>{-2, 0}));
}

}  // namespace
}  // namespace rondo
