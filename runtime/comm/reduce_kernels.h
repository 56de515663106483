// The loops of reduce.cpp, compiled once for each instruction set that is worth it.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/comm/reduce.h"

namespace rondo {

struct ReduceJob {
  const void* const* inputs = nullptr;
  int64_t input_count = 0;
  void* const* outputs = nullptr;
  int64_t output_count = 0;
  int64_t count = 0;  // elements
  double prescale = 1;
  double postscale = 1;
  int divisor = 1;
};

using ReduceKernel = void (*)(const ReduceJob& job);
using FindReduceKernel = ReduceKernel (*)(DType dtype, ReduceOp op);

namespace reduce_baseline {
ReduceKernel find(DType dtype, ReduceOp op);
}
namespace reduce_avx2 {  // AVX2 and F16C; on x86-64 only
ReduceKernel find(DType dtype, ReduceOp op);
}

}  // namespace rondo
