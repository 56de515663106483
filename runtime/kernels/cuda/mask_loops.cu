#include "runtime/kernels/cuda/mask_loops.h"

#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/mask.h"
#include "runtime/kernels/mask_rules.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

void find_mask(cudaStream_t stream, const MaskSpec& spec, const float* in, float value, float* out) {
  const int64_t count = spec.rows * spec.positions;
  launch_elements("mask", stream, count,
                  {reads(in, count * spec.features * kFloat), writes(out, count * kFloat)},
                  mask::Find{spec.features, value, in, out});
}

void scale_by_mask(cudaStream_t stream, const MaskSpec& spec, const float* in, const float* factors,
                   float* out) {
  const int64_t positions = spec.rows * spec.positions, bytes = positions * spec.features * kFloat;
  launch_elements("apply mask", stream, positions * spec.features,
                  {reads(in, bytes), reads(factors, positions * kFloat), writes(out, bytes)},
                  mask::Scale{spec.features, in, factors, out});
}

void mask_shares(cudaStream_t stream, const MaskSpec& spec, const float* in, float* shares) {
  const int64_t bytes = spec.rows * spec.positions * kFloat;
  launch_elements("mask shares", stream, spec.rows, {reads(in, bytes), writes(shares, bytes)},
                  mask::Shares{spec.positions, in, shares});
}

void hide_scores(cudaStream_t stream, const ScoreMaskSpec& spec, const float* scores, const float* query_mask,
                 const float* key_mask, float* out) {
  const int64_t count = spec.rows * spec.heads * spec.queries * spec.keys, bytes = count * kFloat;
  launch_elements(
      "mask scores", stream, count,
      {reads(scores, bytes), reads(query_mask, query_mask != nullptr ? spec.rows * spec.queries * kFloat : 0),
       reads(key_mask, key_mask != nullptr ? spec.rows * spec.keys * kFloat : 0), writes(out, bytes)},
      mask::Hide{spec.heads, spec.queries, spec.keys, scores, query_mask, key_mask, out});
}

}  // namespace rondo::cuda
