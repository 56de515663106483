#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/base/dtype.h"

namespace rondo::cuda {

void convert(cudaStream_t stream, DType from, const void* in, DType to, void* out, int64_t count);
void scale(cudaStream_t stream, DType dtype, const void* in, void* out, int64_t count, double factor);

}  // namespace rondo::cuda
