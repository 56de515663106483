// Checks of a collective's local arguments, shared by all communicators. Each throws InvalidArgument.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/comm/communicator.h"

namespace rondo {

void check_all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options);
void check_all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op, const CollectiveOptions& options);
void check_reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op, int rank,
                          int size, const CollectiveOptions& options);
void check_broadcast(Span buffer, int root, int size);
// In place means here: `in` is this rank's own block within `out`.
void check_all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int rank, int size);
void check_all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts, int rank, int size);
void check_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root, int rank, int size);
void check_scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root, int rank, int size);

}  // namespace rondo
