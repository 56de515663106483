#include "runtime/comm/communicator.h"

#include <cstddef>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"

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

bool floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

}  // namespace

void check_all_reduce(ConstSpan in, Span out, ReduceOp op) {
  check_span("all_reduce", "the input", in);
  check_span("all_reduce", "the output", out);
  require(in.count == out.count, "all_reduce: the input has {} elements, the output {}; they must be equal",
          in.count, out.count);
  require(in.dtype == out.dtype, "all_reduce: the input is {}, the output {}; they must be equal",
          dtype_name(in.dtype), dtype_name(out.dtype));
  require(in.data == out.data || !overlap(in, out),
          "all_reduce: input and output overlap; pass the same span twice or two that do not overlap");
  require(op != ReduceOp::kAverage || floating(in.dtype),
          "all_reduce: an average of {} is not defined; average a floating type, or sum and divide",
          dtype_name(in.dtype));
}

void check_broadcast(Span buffer, int root, int size) {
  check_span("broadcast", "the buffer", buffer);
  require(root >= 0 && root < size, "broadcast: root {} is not a rank of this communicator (0 to {})", root,
          size - 1);
}

void check_all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int rank, int size) {
  check_span("all_gather_v", "the input", in);
  check_span("all_gather_v", "the output", out);
  require(static_cast<int>(counts.size()) == size, "all_gather_v: {} counts for {} ranks; give one for each",
          counts.size(), size);
  require(in.dtype == out.dtype, "all_gather_v: the input is {}, the output {}; they must be equal",
          dtype_name(in.dtype), dtype_name(out.dtype));
  int64_t total = 0;
  int64_t before = 0;
  for (int r = 0; r < size; ++r) {
    const int64_t count = counts[static_cast<size_t>(r)];
    require(count >= 0, "all_gather_v: the count of rank {} is {}; a count cannot be negative", r, count);
    if (r < rank) before += count;
    total += count;
  }
  const int64_t own = counts[static_cast<size_t>(rank)];
  require(in.count == own, "all_gather_v: rank {} gives {} elements, but its count is {}", rank, in.count,
          own);
  require(out.count == total, "all_gather_v: the output has {} elements, but the counts add up to {}",
          out.count, total);
  const auto* block = static_cast<const std::byte*>(out.data) + before * dtype_size(out.dtype);
  require(in.data == block || !overlap(in, out),
          "all_gather_v: input and output overlap; in place means that the input is this rank's block of the "
          "output");
}

void Work::drop() noexcept {
  WorkState* state = std::exchange(state_, nullptr);
  if (state == nullptr) return;
  try {
    state->wait();
  } catch (...) {
    // Told to whoever waited; a sticky error comes again with the next call.
  }
  state->release();
}

}  // namespace rondo
