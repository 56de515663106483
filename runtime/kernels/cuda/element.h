// The element types of this folder's kernels: float, and the two of 16 bits, in which kernels keep tensors
// but never compute.
#pragma once

#include "runtime/base/error.h"
#include "runtime/tensor/tensor.h"

struct __half;
struct __nv_bfloat16;

namespace rondo::cuda {

template <class T>
struct Element {
  using type = T;
};

// go(Element<T>()) with the type of device memory that `dtype` stands for: float32, bfloat16 or float16.
template <class Go>
decltype(auto) with_element(DType dtype, const Go& go) {
  switch (dtype) {
    case DType::kF32:
      return go(Element<float>());
    case DType::kBF16:
      return go(Element<__nv_bfloat16>());
    case DType::kF16:
      return go(Element<__half>());
    default:
      raise<InternalError>("no kernel works on {}", dtype_name(dtype));
  }
}

// As require_floats, and takes bfloat16 and float16, too.
void require_elements(const TensorDesc& desc, const char* what);

}  // namespace rondo::cuda
