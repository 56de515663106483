// Kernels of runtime/kernels/broadcast.h and constraint.h in device memory (broadcast_loops.cu): each functor
// over `count` elements, of which it reads and writes what its name says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/kernels/broadcast_rules.h"

namespace rondo {
struct StepState;
}  // namespace rondo

namespace rondo::cuda {

// `small` and `large`: elements of the tensor that is repeated, and of the whole one.
struct SpreadSizes {
  int64_t small = 0, large = 0;
};
void spread_tensor(cudaStream_t stream, const SpreadSizes& sizes, const spread::Spread& f);
void sum_tensor(cudaStream_t stream, const SpreadSizes& sizes, const spread::Sum& f);
void prelu_forward(cudaStream_t stream, const SpreadSizes& sizes, const spread::PreluForward& f);
void prelu_input(cudaStream_t stream, const SpreadSizes& sizes, const spread::PreluInput& f);
void prelu_alpha(cudaStream_t stream, const SpreadSizes& sizes, const spread::PreluAlpha& f);

// `state` may be null; its skip is read on the device.
void constrain_sign(cudaStream_t stream, int64_t count, const StepState* state, float* weights);
void constrain_norm(cudaStream_t stream, int64_t count, const StepState* state, spread::Norm f);

}  // namespace rondo::cuda
