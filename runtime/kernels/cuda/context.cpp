#include "runtime/kernels/cuda/context.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/check.h"
#include "runtime/kernels/cuda/element.h"

namespace rondo::cuda {

cublasLtHandle_t Context::cublas() {
  if (!cublas_) {
    cublasLtHandle_t handle = nullptr;
    make_current(device);
    RONDO_CHECK_CUBLAS(cublasLtCreate(&handle));
    cublas_.reset(handle);
  }
  return cublas_.get();
}

cudnnHandle_t Context::cudnn() {
  if (!cudnn_) {
    cudnnHandle_t handle = nullptr;
    make_current(device);
    RONDO_CHECK_CUDNN(cudnnCreate(&handle));
    cudnn_.reset(handle);
  }
  return cudnn_.get();
}

cudnnHandle_t Context::cudnn_on(Stream& stream) {
  const cudnnHandle_t handle = cudnn();
  RONDO_CHECK_CUDNN(cudnnSetStream(handle, handle_of(stream)));
  return handle;
}

void require_floats(const TensorDesc& desc, const char* what) {
  require(desc.dtype == DType::kF32, "{} works on float32, got {}", what, dtype_name(desc.dtype));
  require_elements(desc, what);
}

void require_elements(const TensorDesc& desc, const char* what) {
  require(desc.dtype == DType::kF32 || desc.dtype == DType::kBF16 || desc.dtype == DType::kF16,
          "{} works on float32, bfloat16 and float16, got {}", what, dtype_name(desc.dtype));
  require(desc.shape.rank() >= 1 && desc.elements() > 0, "{} needs at least one element, got {}", what,
          desc.shape.text());
  require(desc.layout.canonical(), "{} works on the canonical layout, got \"{}\": reorder before it", what,
          desc.layout.text());
}

}  // namespace rondo::cuda
