#pragma once

#include <cublasLt.h>
#include <cudnn.h>

namespace rondo::cuda {

// Throw DeviceError: what was called and the library's text.
void check(cublasStatus_t status, const char* call);
void check(cudnnStatus_t status, const char* call);

}  // namespace rondo::cuda

#define RONDO_CHECK_CUBLAS(call) ::rondo::cuda::check((call), #call)
#define RONDO_CHECK_CUDNN(call) ::rondo::cuda::check((call), #call)
