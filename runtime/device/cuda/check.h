#pragma once

#include <cuda_runtime_api.h>

namespace rondo::cuda {

// Throws DeviceError: what was called, CUDA's name and text of the error, and what helps against it.
[[noreturn]] void raise_cuda(cudaError_t error, const char* call);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) raise_cuda(error, call);
}

}  // namespace rondo::cuda

// Checks a call of the CUDA runtime.
#define RONDO_CHECK_CUDA(call) ::rondo::cuda::check((call), #call)
