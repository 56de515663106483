// Reductions whose results are exact in every type and order, and their float64 oracle.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/comm/communicator.h"

namespace rondo {

inline constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                       ReduceOp::kProduct};

struct ReduceCase {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;
  bool in_place = true;
  bool misaligned = false;
  double prescale = 1.0;
  double postscale = 1.0;
};

// Small integers, so that every sum is exact; for products mostly ones.
double input_value(const ReduceCase& c, int rank, int64_t i);
// What the definition in communicator.h gives for `size` ranks.
double expected_value(const ReduceCase& c, int size, int64_t i);

// Each calls the collective and compares every element, what lies around the buffers, and that an input of
// its own is left alone.
void check_reduce(Communicator& comm, const ReduceCase& c);
// Five spans of different lengths, `count` in all.
void check_reduce_group(Communicator& comm, const ReduceCase& c);
// Blocks of random lengths, `count` in all.
void check_reduce_scatter(Communicator& comm, const ReduceCase& c, uint64_t seed);

// `total` in `parts` parts of random length, some of them empty.
std::vector<int64_t> random_parts(int64_t total, int parts, uint64_t seed);

}  // namespace rondo
