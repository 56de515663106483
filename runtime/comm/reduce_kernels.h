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
// Between 16-bit floats and float.
struct HalfKernels {
  void (*widen)(const void* from, float* to, int64_t count) = nullptr;
  void (*narrow)(const float* from, void* to, int64_t count) = nullptr;
};

using FindReduceKernel = ReduceKernel (*)(DType dtype, ReduceOp op);

using FindHalfKernels = HalfKernels (*)(DType dtype);

namespace reduce_baseline {
ReduceKernel find(DType dtype, ReduceOp op);
HalfKernels find_halves(DType dtype);
}  // namespace reduce_baseline
namespace reduce_avx2 {  // AVX2 and F16C; on x86-64 only
ReduceKernel find(DType dtype, ReduceOp op);
HalfKernels find_halves(DType dtype);
}  // namespace reduce_avx2

}  // namespace rondo
