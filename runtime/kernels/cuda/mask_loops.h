// Kernels of runtime/kernels/mask.h on float32 arrays in device memory (mask_loops.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace rondo {
struct MaskSpec;
struct ScoreMaskSpec;
}  // namespace rondo

namespace rondo::cuda {

void find_mask(cudaStream_t stream, const MaskSpec& spec, const float* in, float value, float* mask);
void scale_by_mask(cudaStream_t stream, const MaskSpec& spec, const float* in, const float* mask, float* out);
void mask_shares(cudaStream_t stream, const MaskSpec& spec, const float* mask, float* shares);
// Masks may be null.
void hide_scores(cudaStream_t stream, const ScoreMaskSpec& spec, const float* scores, const float* query_mask,
                 const float* key_mask, float* out);

}  // namespace rondo::cuda
