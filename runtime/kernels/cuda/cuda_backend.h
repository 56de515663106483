#pragma once

#include <memory>
#include <string>

#include "runtime/kernels/backend.h"

namespace rondo {

// Kernels for a GPU over cuDNN, cuBLASLt and own loops. All give the same bits in every run. The device must
// outlive the backend.
std::unique_ptr<KernelBackend> make_cuda_backend(Device& device);

std::string cudnn_version();   // "9.19.0"
std::string cublas_version();  // "13.1.0"

}  // namespace rondo
