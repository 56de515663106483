#include "runtime/comm/reduce.h"

#include <array>

#include "runtime/base/error.h"
#include "runtime/comm/reduce_kernels.h"

namespace rondo {
namespace {

struct Variant {
  FindReduceKernel find = reduce_baseline::find;
  FindHalfKernels find_halves = reduce_baseline::find_halves;
};

Variant choose_variant() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    return {reduce_avx2::find, reduce_avx2::find_halves};
#endif
  return {};
}

const Variant& variant() {
  static const Variant chosen = choose_variant();
  return chosen;
}

HalfKernels half_kernels(DType dtype) {
  const HalfKernels kernels = variant().find_halves(dtype);
  RONDO_CHECK(kernels.widen != nullptr);
  return kernels;
}

ReduceKernel find_kernel(DType dtype, ReduceOp op) {
  const ReduceKernel kernel = variant().find(dtype, op);
  RONDO_CHECK(kernel != nullptr);
  return kernel;
}

}  // namespace

void reduce(const Reduction& reduction, std::span<const void* const> inputs, std::span<void* const> outputs,
            int64_t count) {
  RONDO_CHECK(!inputs.empty());
  find_kernel(reduction.dtype, reduction.op)({.inputs = inputs.data(),
                                              .input_count = static_cast<int64_t>(inputs.size()),
                                              .outputs = outputs.data(),
                                              .output_count = static_cast<int64_t>(outputs.size()),
                                              .count = count,
                                              .prescale = reduction.prescale,
                                              .postscale = reduction.postscale,
                                              .divisor = reduction.divisor});
}

void widen(DType dtype, const void* from, float* to, int64_t count) {
  half_kernels(dtype).widen(from, to, count);
}

void narrow(DType dtype, const float* from, void* to, int64_t count) {
  half_kernels(dtype).narrow(from, to, count);
}

void reduce_all(DType dtype, ReduceOp op, std::span<const void* const> inputs, void* out, int64_t count) {
  const int divisor = op == ReduceOp::kAverage ? static_cast<int>(inputs.size()) : 1;
  const std::array<void*, 1> outputs{out};
  reduce({.dtype = dtype, .op = op, .divisor = divisor}, inputs, outputs, count);
}

void combine(DType dtype, ReduceOp op, const void* a, const void* b, void* out, int64_t count, int divisor) {
  const std::array<const void*, 2> inputs{a, b};
  const std::array<void*, 1> outputs{out};
  reduce({.dtype = dtype, .op = op, .divisor = divisor}, inputs, outputs, count);
}

}  // namespace rondo
