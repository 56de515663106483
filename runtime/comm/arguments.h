// Checks of a collective's local arguments, shared by all communicators. Each throws InvalidArgument.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/comm/communicator.h"

namespace rondo {

void check_all_reduce(ConstSpan in, Span out, ReduceOp op);
void check_broadcast(Span buffer, int root, int size);
// In place means here: `in` is this rank's own block within `out`.
void check_all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int rank, int size);

}  // namespace rondo
