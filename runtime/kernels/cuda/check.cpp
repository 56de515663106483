#include "runtime/kernels/cuda/check.h"

#include <cuda_runtime_api.h>

#include <string_view>

#include "runtime/base/error.h"
#include "runtime/device/cuda/check.h"
#include "runtime/kernels/cuda/launch.h"

namespace rondo::cuda {
namespace {

std::string_view name_of(const char* call) {
  const std::string_view text(call);
  return text.substr(0, text.find('('));
}

}  // namespace

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  raise<DeviceError>("{} failed: {}", name_of(call), cublasLtGetStatusString(status));
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  raise<DeviceError>("{} failed: {}", name_of(call), cudnnGetErrorString(status));
}

void check_launch(const char* name) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) raise_cuda(error, name);
}

}  // namespace rondo::cuda
