// Kernels of optimizer updates over float32 arrays in device memory (update.cu): see loops.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/base/update_rules.h"
#include "runtime/kernels/update.h"

namespace rondo {
struct StepState;
}  // namespace rondo

namespace rondo::cuda {

// What an update by tensor keeps on the device. Null where the update works on the span as a whole.
struct TensorTables {
  const UpdateChunk* chunks = nullptr;
  int64_t chunk_count = 0;
  const int64_t* first_chunk = nullptr;  // of each tensor, and behind the last
  const uint8_t* plain = nullptr;        // of each tensor
  int64_t tensor_count = 0;
  double* squares = nullptr;  // two for each chunk: of weights, and of gradients or directions
  float* clip = nullptr;      // factors of each tensor
  float* trust = nullptr;
};

struct UpdateCall {
  UpdateSpan span;
  const StepState* state = nullptr;
  float limit = HUGE_VALF;
  float clip_norm = 0.0f;
  TensorTables tensors = {};
};
void update(cudaStream_t stream, const UpdateSpec& spec, const UpdateCall& call);

// What SquareSumKernel says; `parts` has room for kSquareParts doubles. `state` may be null without a limit.
constexpr int64_t kSquareParts = 512;
void square_sum(cudaStream_t stream, const StepState* state, float limit, const float* values, int64_t count,
                double* parts, double* out);

void clip_norm(cudaStream_t stream, double limit, const double* square_sums, int64_t count, StepState* state,
               double* norm);

}  // namespace rondo::cuda
