// Loads and stores of the types of element.h, for kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "runtime/kernels/cuda/launch.h"

namespace rondo::cuda {

RONDO_DEVICE inline float as_float(float x) {
  return x;
}
RONDO_DEVICE inline float as_float(__half x) {
  return __half2float(x);
}
RONDO_DEVICE inline float as_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// To the nearest value, ties to even; beyond the largest one to infinity.
template <class T>
RONDO_DEVICE inline T rounded(float x);
template <>
RONDO_DEVICE inline float rounded<float>(float x) {
  return x;
}
template <>
RONDO_DEVICE inline __half rounded<__half>(float x) {
  return __float2half_rn(x);
}
template <>
RONDO_DEVICE inline __nv_bfloat16 rounded<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <class T>
constexpr int64_t kBytesOf = sizeof(T);

}  // namespace rondo::cuda

// Makes the definitions of a function template for all element types.
#define RONDO_FOR_ELEMENTS(INSTANTIATE) \
  INSTANTIATE(float)                    \
  INSTANTIATE(__half)                   \
  INSTANTIATE(__nv_bfloat16)
