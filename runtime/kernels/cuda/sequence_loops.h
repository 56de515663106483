// Kernels of runtime/kernels/sequence.h on float32 arrays in device memory (sequence_loops.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace rondo {
struct GateGradient;
struct GateSpec;
struct GateState;
}  // namespace rondo

namespace rondo::cuda {

struct Embedding {
  int64_t count = 0;  // of indices
  int64_t entries = 0, width = 0;
  const float* indices = nullptr;
};
// Rows of NaN for numbers that are no row of the table.
void embedding_forward(cudaStream_t stream, const Embedding& e, const float* table, float* out);
void embedding_backward(cudaStream_t stream, const Embedding& e, const float* dy, float* d_table);

struct LayerNorm {
  int64_t rows = 0, channels = 0;
  float epsilon = 0.0f;
  const float* gamma = nullptr;  // may be null: 1
  const float* beta = nullptr;   // may be null: 0
  float* statistics = nullptr;   // (rows, 2): mean and 1 / sqrt(variance + epsilon); may be null in forward
};
void layer_norm_forward(cudaStream_t stream, const LayerNorm& norm, const float* x, float* y);
// `parts` has room for layer_norm_parts() * 2 * channels doubles; d_gamma and d_beta may be null.
int64_t layer_norm_parts(int64_t rows, int64_t channels);
void layer_norm_backward(cudaStream_t stream, const LayerNorm& norm, const float* x, const float* dy,
                         double* parts, float* dx, float* d_gamma, float* d_beta);

// gate_loops.cu
void gates_forward(cudaStream_t stream, const GateSpec& spec, const GateState& state);
void gates_backward(cudaStream_t stream, const GateSpec& spec, const GateGradient& gradient);
void gates_reset(cudaStream_t stream, const GateSpec& spec, const GateState& state);
void gates_backward_candidate(cudaStream_t stream, const GateSpec& spec, const GateGradient& gradient);

}  // namespace rondo::cuda
