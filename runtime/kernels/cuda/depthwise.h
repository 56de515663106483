// Depthwise convolution on float32 arrays in device memory (depthwise.cu): each channel c of (batch, height,
// width, channels) with `multiplier` windows, giving channels c * multiplier + j. Weights lie as Keras has
// them, (window height, window width, channels * multiplier): neighbouring threads work on neighbouring
// channels and read neighbouring floats everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {

struct Depthwise {
  WindowGeometry window;  // its channels: of the input
  int64_t multiplier = 1;
};
void depthwise_forward(cudaStream_t stream, const Depthwise& d, const float* x, const float* w, float* y);
void depthwise_input(cudaStream_t stream, const Depthwise& d, const float* dy, const float* w, float* dx);
// How many partial sums a weight's gradient is cut into: a function of the shapes alone. `parts` has room for
// as many times the number of weights doubles.
int64_t depthwise_parts(const Depthwise& d);
void depthwise_weights(cudaStream_t stream, const Depthwise& d, const float* x, const float* dy,
                       double* parts, float* dw);

}  // namespace rondo::cuda
