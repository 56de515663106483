#include "runtime/comm/arguments.h"

#include <cmath>
#include <cstddef>

#include "runtime/base/error.h"

namespace rondo {
namespace {

bool overlap(ConstSpan a, ConstSpan b) {
  const auto* a_begin = static_cast<const std::byte*>(a.data);
  const auto* b_begin = static_cast<const std::byte*>(b.data);
  return a.count > 0 && b.count > 0 && a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

void check_span(const char* call, const char* which, ConstSpan span) {
  require(span.count >= 0, "{}: {} has {} elements; a count cannot be negative", call, which, span.count);
  require(span.data != nullptr || span.count == 0, "{}: {} is null but has {} elements", call, which,
          span.count);
}

void check_spans(const char* call, ConstSpan in, ConstSpan out) {
  check_span(call, "the input", in);
  check_span(call, "the output", out);
  require(in.dtype == out.dtype, "{}: the input is {}, the output {}; they must be equal", call,
          dtype_name(in.dtype), dtype_name(out.dtype));
}

bool floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

void check_reduction(const char* call, DType dtype, ReduceOp op, const CollectiveOptions& options) {
  require(op != ReduceOp::kAverage || floating(dtype),
          "{}: an average of {} is not defined; average a floating type, or sum and divide", call,
          dtype_name(dtype));
  require(std::isfinite(options.prescale) && std::isfinite(options.postscale),
          "{}: scales must be finite, got prescale {} and postscale {}", call, options.prescale,
          options.postscale);
}

void check_root(const char* call, int root, int size) {
  require(root >= 0 && root < size, "{}: root {} is not a rank of this communicator (0 to {})", call, root,
          size - 1);
}

struct Sums {
  int64_t before = 0;  // elements of the ranks below this one
  int64_t own = 0;
  int64_t total = 0;
};

Sums check_counts(const char* call, std::span<const int64_t> counts, int rank, int size) {
  require(static_cast<int>(counts.size()) == size, "{}: {} counts for {} ranks; give one for each", call,
          counts.size(), size);
  Sums sums;
  for (int r = 0; r < size; ++r) {
    const int64_t count = counts[static_cast<size_t>(r)];
    require(count >= 0, "{}: the count of rank {} is {}; a count cannot be negative", call, r, count);
    if (r < rank) sums.before += count;
    if (r == rank) sums.own = count;
    sums.total += count;
  }
  return sums;
}

// `block` (rank's own) against `whole`: the same memory, or apart.
void check_block_in_place(const char* call, ConstSpan block, ConstSpan whole, int64_t before,
                          const char* meaning) {
  const auto* own = static_cast<const std::byte*>(whole.data) + before * dtype_size(whole.dtype);
  require(block.data == own || !overlap(block, whole),
          "{}: input and output overlap; in place means that the {}", call, meaning);
}

void check_gathered(const char* call, ConstSpan in, Span out, const Sums& sums) {
  require(out.count == sums.total, "{}: the output has {} elements, but the counts add up to {}", call,
          out.count, sums.total);
  check_block_in_place(call, in, out, sums.before, "input is this rank's block of the output");
}

void check_own_input(const char* call, ConstSpan in, const Sums& sums, int rank) {
  require(in.count == sums.own, "{}: rank {} gives {} elements, but its count is {}", call, rank, in.count,
          sums.own);
}

void check_own_output(const char* call, Span out, const Sums& sums, int rank) {
  require(out.count == sums.own, "{}: the output of rank {} has {} elements, but its count is {}", call, rank,
          out.count, sums.own);
}

void check_scattered(const char* call, ConstSpan in, Span out, const Sums& sums) {
  require(in.count == sums.total, "{}: the input has {} elements, but the counts add up to {}", call,
          in.count, sums.total);
  check_block_in_place(call, out, in, sums.before, "output is this rank's block of the input");
}

}  // namespace

void check_all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) {
  check_spans("all_reduce", in, out);
  require(in.count == out.count, "all_reduce: the input has {} elements, the output {}; they must be equal",
          in.count, out.count);
  require(in.data == out.data || !overlap(in, out),
          "all_reduce: input and output overlap; pass the same span twice or two that do not overlap");
  check_reduction("all_reduce", in.dtype, op, options);
}

void check_all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op, const CollectiveOptions& options) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    const SpanPair& pair = pairs[i];
    check_all_reduce(pair.in, pair.out, op, options);
    require(pair.in.dtype == pairs[0].in.dtype,
            "all_reduce_group: pair 0 is {}, pair {} is {}; make one group for each type",
            dtype_name(pairs[0].in.dtype), i, dtype_name(pair.in.dtype));
    for (size_t j = 0; j < i; ++j) {
      require(!overlap(pair.out, pairs[j].out) && !overlap(pair.out, pairs[j].in) &&
                  !overlap(pair.in, pairs[j].out),
              "all_reduce_group: the output of a pair overlaps another pair ({} and {})", j, i);
    }
  }
}

void check_reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op, int rank,
                          int size, const CollectiveOptions& options) {
  const char* const call = "reduce_scatter";
  check_spans(call, in, out);
  const Sums sums = check_counts(call, counts, rank, size);
  check_own_output(call, out, sums, rank);
  check_scattered(call, in, out, sums);
  check_reduction(call, in.dtype, op, options);
}

void check_broadcast(Span buffer, int root, int size) {
  check_span("broadcast", "the buffer", buffer);
  check_root("broadcast", root, size);
}

void check_all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int rank, int size) {
  const char* const call = "all_gather_v";
  check_spans(call, in, out);
  const Sums sums = check_counts(call, counts, rank, size);
  check_own_input(call, in, sums, rank);
  check_gathered(call, in, out, sums);
}

void check_all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts, int rank, int size) {
  const char* const call = "all_to_all_v";
  check_spans(call, in, out);
  const Sums sent = check_counts(call, send_counts, rank, size);
  const Sums received = check_counts(call, receive_counts, rank, size);
  require(in.count == sent.total, "{}: the input has {} elements, but the send counts add up to {}", call,
          in.count, sent.total);
  require(out.count == received.total, "{}: the output has {} elements, but the receive counts add up to {}",
          call, out.count, received.total);
  require(sent.own == received.own, "{}: rank {} sends itself {} elements, but expects {}", call, rank,
          sent.own, received.own);
  require(in.data == out.data || !overlap(in, out),
          "{}: input and output overlap; pass the same memory twice or two that do not overlap", call);
}

void check_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root, int rank, int size) {
  const char* const call = "gather_v";
  check_span(call, "the input", in);
  check_root(call, root, size);
  const Sums sums = check_counts(call, counts, rank, size);
  check_own_input(call, in, sums, rank);
  if (rank != root) return;
  check_spans(call, in, out);
  check_gathered(call, in, out, sums);
}

void check_scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root, int rank, int size) {
  const char* const call = "scatter_v";
  check_span(call, "the output", out);
  check_root(call, root, size);
  const Sums sums = check_counts(call, counts, rank, size);
  check_own_output(call, out, sums, rank);
  if (rank != root) return;
  check_spans(call, in, out);
  check_scattered(call, in, out, sums);
}

}  // namespace rondo
