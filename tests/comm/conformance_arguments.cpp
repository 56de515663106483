// Wrong local arguments: an InvalidArgument at once, before anything is sent, on this rank alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"

namespace rondo {
namespace {

void expect_rejected(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown, where a message with \"" << part << "\" was expected";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

void expect_usable(Communicator& comm) {
  std::vector<float> values(25000, 1.0f);
  const Span span = span_of(std::span(values));
  comm.all_reduce(span, span, ReduceOp::kSum, {.label = "afterwards"}).wait();
  EXPECT_EQ(values.back(), static_cast<float>(comm.size()));
}

// Buffers of 12 elements for each rank.
struct Buffers {
  explicit Buffers(const Communicator& comm)
      : size(static_cast<size_t>(comm.size())),
        values(12 * size, 1.0f),
        result(12 * size, 0.0f),
        ints(12 * size, 1),
        counts(size, 12),
        other(size, 12) {}

  Span all() { return span_of(std::span(values)); }
  Span out() { return span_of(std::span(result)); }
  Span integers() { return span_of(std::span(ints)); }
  static Span part(std::vector<float>& from, size_t begin, int64_t count) {
    return {&from[begin], count, DType::kF32};
  }

  size_t size;
  std::vector<float> values;
  std::vector<float> result;
  std::vector<int32_t> ints;
  std::vector<int64_t> counts;
  std::vector<int64_t> other;
};

void wrong_reductions(Communicator& comm) {
  Buffers b(comm);
  const auto reduce = [&](ConstSpan in, Span out, ReduceOp op, double prescale = 1, double postscale = 1) {
    return [=, &comm] { comm.all_reduce(in, out, op, {.prescale = prescale, .postscale = postscale}); };
  };
  expect_rejected(reduce(b.all(), Buffers::part(b.result, 0, 9), ReduceOp::kSum), "the output 9");
  expect_rejected(reduce(b.all(), b.integers(), ReduceOp::kSum), "int32");
  expect_rejected(reduce(b.integers(), b.integers(), ReduceOp::kAverage), "average of int32");
  expect_rejected(reduce(Buffers::part(b.values, 0, 9), Buffers::part(b.values, 1, 9), ReduceOp::kSum),
                  "overlap");
  expect_rejected(reduce({nullptr, 12, DType::kF32}, Buffers::part(b.result, 0, 12), ReduceOp::kSum), "null");
  expect_rejected(reduce(Buffers::part(b.values, 0, -1), Buffers::part(b.result, 0, -1), ReduceOp::kSum),
                  "negative");
  expect_rejected(reduce(b.all(), b.out(), ReduceOp::kSum, std::nan("")), "finite");
  expect_rejected(reduce(b.all(), b.out(), ReduceOp::kSum, 1, std::numeric_limits<double>::infinity()),
                  "finite");
  const auto group = [&](std::vector<SpanPair> pairs, ReduceOp op) {
    return [=, &comm] { comm.all_reduce_group(pairs, op); };
  };
  const SpanPair first{Buffers::part(b.values, 0, 4), Buffers::part(b.result, 0, 4)};
  expect_rejected(group({first, {b.integers(), b.integers()}}, ReduceOp::kSum), "pair 1 is int32");
  expect_rejected(
      group({first, {Buffers::part(b.values, 4, 4), Buffers::part(b.result, 3, 4)}}, ReduceOp::kSum),
      "overlaps");
  expect_rejected(
      group({first, {Buffers::part(b.result, 0, 4), Buffers::part(b.result, 4, 4)}}, ReduceOp::kSum),
      "overlaps");
  expect_rejected(group({{b.integers(), b.integers()}}, ReduceOp::kAverage), "average");
  expect_usable(comm);
}

void wrong_blocks(Communicator& comm) {
  Buffers b(comm);
  const Span block = Buffers::part(b.result, 0, 12);
  const auto scatter = [&](ConstSpan in, Span out) {
    return [&, in, out] { comm.reduce_scatter(in, out, b.counts, ReduceOp::kSum); };
  };
  expect_rejected(scatter(b.all(), Buffers::part(b.result, 0, 11)), "its count is 12");
  expect_rejected(scatter(Buffers::part(b.values, 0, 1), block), "add up to");
  expect_rejected(
      scatter(b.all(), Buffers::part(b.values, comm.rank() == 0 ? 1 : 0, comm.size() > 1 ? 12 : 11)),
      comm.size() > 1 ? "overlap" : "its count is 12");
  expect_rejected(
      [&] {
        comm.reduce_scatter(b.integers(), {b.ints.data(), 12, DType::kI32}, b.counts, ReduceOp::kAverage);
      },
      comm.rank() == 0 ? "average" : "overlap");
  const auto gather = [&](ConstSpan in) { return [&, in] { comm.all_gather_v(in, b.out(), b.counts); }; };
  expect_rejected(gather(Buffers::part(b.values, 0, 2)), "its count is 12");
  expect_rejected([&] { comm.all_gather(Buffers::part(b.values, 0, 5), b.out()); }, "add up to");
  b.counts.push_back(0);
  expect_rejected(gather(Buffers::part(b.values, 0, 12)), "counts for");
  b.counts.pop_back();
  b.counts[0] = -1;
  expect_rejected(gather(Buffers::part(b.values, 0, 12)), "negative");
  expect_rejected(scatter(b.all(), block), "negative");
  expect_usable(comm);
}

void wrong_roots(Communicator& comm) {
  Buffers b(comm);
  const Span block = Buffers::part(b.result, 0, 12);
  for (const int root : {-1, comm.size()}) {
    expect_rejected([&] { comm.broadcast(b.all(), root); }, "root");
    expect_rejected([&] { comm.gather(Buffers::part(b.values, 0, 12), b.out(), root); }, "root");
    expect_rejected([&] { comm.scatter(b.all(), block, root); }, "root");
  }
  expect_rejected([&] { comm.broadcast(Buffers::part(b.values, 0, -1), 0); }, "negative");
  if (comm.rank() == 0) {
    // Only the root's whole buffer is looked at.
    expect_rejected([&] { comm.gather(Buffers::part(b.values, 0, 12), Buffers::part(b.result, 0, 3), 0); },
                    "add up to");
    expect_rejected([&] { comm.scatter(Buffers::part(b.values, 0, 3), block, 0); }, "add up to");
    expect_rejected([&] { comm.scatter(b.integers(), block, 0); }, "int32");
  }
  expect_usable(comm);
}

void wrong_splits(Communicator& comm) {
  Buffers b(comm);
  const auto shuffle = [&] { comm.all_to_all_v(b.all(), b.out(), b.counts, b.other); };
  b.counts[0] += 1;
  expect_rejected(shuffle, "the send counts add up to");
  b.counts[0] -= 1;
  b.other.back() += 3;
  expect_rejected(shuffle, "the receive counts add up to");
  b.other.back() -= 3;
  b.counts[0] = -1;
  expect_rejected(shuffle, "negative");
  b.counts[0] = 12;
  if (comm.size() > 1) {
    // What it sends to itself and what it expects from itself.
    const auto own = static_cast<size_t>(comm.rank());
    b.counts[own] -= 2;
    b.counts[own == 0 ? 1 : 0] += 2;
    expect_rejected(shuffle, "sends itself 10 elements, but expects 12");
    expect_rejected(
        [&] {
          comm.all_to_all(Buffers::part(b.values, 0, comm.size() + 1),
                          Buffers::part(b.result, 0, comm.size() + 1));
        },
        "divided evenly");
  }
  b.other.pop_back();
  expect_rejected(shuffle, "counts for");
  expect_rejected(
      [&] {
        comm.all_to_all(
            Buffers::part(b.values, 0, comm.size()),
            Buffers::part(b.values, comm.size() == 1 ? 0 : 1, comm.size() == 1 ? 0 : comm.size()));
      },
      comm.size() == 1 ? "add up to" : "overlap");
  expect_rejected([&] { comm.all_to_all(b.all(), b.integers()); }, "int32");
  expect_usable(comm);
}

constexpr ConformanceCase kCases[] = {
    {"WrongReductions", wrong_reductions},
    {"WrongBlocks", wrong_blocks},
    {"WrongRoots", wrong_roots},
    {"WrongSplits", wrong_splits},
};

}  // namespace

std::span<const ConformanceCase> argument_cases() {
  return kCases;
}

}  // namespace rondo
