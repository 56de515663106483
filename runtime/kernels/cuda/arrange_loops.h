// Kernels of runtime/kernels/arrange.h on float32 arrays in device memory (arrange_loops.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

namespace rondo {
struct StepState;
enum class Binary : uint8_t;
}  // namespace rondo

namespace rondo::cuda {

// The result's axes: their extents, and how far apart their elements lie in the input.
struct Permutation {
  int rank = 0;
  std::array<int64_t, 6> extents{}, strides{};
  int64_t count = 0;
  int64_t first = 0;  // where the result's first element is in the input
};
void permute(cudaStream_t stream, const Permutation& permutation, const float* x, float* y);

struct BinaryArguments {
  Binary function{};
  float a = 1.0f, b = 1.0f;
  int64_t count = 0;
  const float *x = nullptr, *y = nullptr;
};
void binary_forward(cudaStream_t stream, const BinaryArguments& arguments, float* out);
// x and y may be null for a weighted sum; dx may be dout.
void binary_backward(cudaStream_t stream, const BinaryArguments& arguments, const float* dout, float* dx,
                     float* dy);

struct PenaltyArguments {
  double l1 = 0.0, l2 = 0.0;
  int64_t rows = 0, count = 0;
  const float* weights = nullptr;
};
constexpr int64_t kPenaltyParts = 256;
// *sum += rows * penalty; `parts` has room for kPenaltyParts doubles.
void add_penalty(cudaStream_t stream, const PenaltyArguments& arguments, double* parts, double* sum);
void add_penalty_gradient(cudaStream_t stream, const PenaltyArguments& arguments, const StepState* state,
                          float* grad);

}  // namespace rondo::cuda
