// The arithmetic of reductions on host memory. Pointers need no alignment.
//
// 16-bit floats are added in float and rounded to nearest even when stored. Integers wrap. Minimum and
// maximum keep the first of two operands that do not compare (NaN). Scales apply in the accumulation type; to
// integers in double, where the result is truncated and saturates.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/comm/communicator.h"

namespace rondo {

// What to do with the ranks' elements: result = (op over ranks of element * prescale) / divisor * postscale.
struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // kAverage adds; the division is the divisor's
  double prescale = 1;
  double postscale = 1;
  int divisor = 1;
};

// The reduction of inputs[0][i], inputs[1][i], ... from left to right, stored to every outputs[k][i]. Outputs
// may be among the inputs; otherwise arrays do not overlap.
void reduce(const Reduction& reduction, std::span<const void* const> inputs, std::span<void* const> outputs,
            int64_t count);

// out[i] = inputs[0][i] op inputs[1][i] op ..., from left to right in the accumulation type; an average is
// divided by the number of inputs before it is rounded. `out` may be one of the inputs.
void reduce_all(DType dtype, ReduceOp op, std::span<const void* const> inputs, void* out, int64_t count);

// 16-bit floats (`dtype`) to float, and back, rounded to nearest even.
void widen(DType dtype, const void* from, float* to, int64_t count);
void narrow(DType dtype, const float* from, void* to, int64_t count);

// out[i] = a[i] op b[i]; with divisor > 1 the result is divided by it. `out` may be `a` or `b`.
void combine(DType dtype, ReduceOp op, const void* a, const void* b, void* out, int64_t count,
             int divisor = 1);

}  // namespace rondo
