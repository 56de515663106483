// What the kernels of one backend share: the GPU and the libraries' handles.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <memory>

#include "runtime/base/handle.h"
#include "runtime/tensor/tensor.h"

namespace rondo {
class Device;
class Stream;
}  // namespace rondo

namespace rondo::cuda {

struct CublasTraits {
  static cublasLtHandle_t empty() { return nullptr; }
  static void destroy(cublasLtHandle_t handle) { cublasLtDestroy(handle); }
};
struct CudnnTraits {
  static cudnnHandle_t empty() { return nullptr; }
  static void destroy(cudnnHandle_t handle) { cudnnDestroy(handle); }
};

// One thread at a time makes and executes the kernels of a context.
class Context {
 public:
  explicit Context(Device& device_of_kernels) : device(device_of_kernels) {}

  // Made at first use.
  cublasLtHandle_t cublas();
  cudnnHandle_t cudnn();
  cudnnHandle_t cudnn_on(Stream& stream);

  Device& device;

 private:
  Handle<cublasLtHandle_t, CublasTraits> cublas_;
  Handle<cudnnHandle_t, CudnnTraits> cudnn_;
};
using ContextPtr = std::shared_ptr<Context>;

// Throws InvalidArgument where `desc` is not float32, not canonical, or has no elements.
void require_floats(const TensorDesc& desc, const char* what);

}  // namespace rondo::cuda
