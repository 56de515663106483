// The loops of runtime/kernels/mask.h, written once and compiled for hosts and for CUDA: element i of each.
#pragma once

#include <cstdint>

#include "runtime/base/functors.h"

namespace rondo::mask {

// i: of the positions of all rows.
struct Find {
  int64_t features;
  float value;
  const float* in;
  float* out;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    const float* x = in + i * features;
    bool counts = false;
    for (int64_t f = 0; f < features; ++f) counts = counts || x[f] != value;
    out[i] = counts ? 1.0f : 0.0f;
  }
};

// i: of the elements.
struct Scale {
  int64_t features;
  const float *in, *factors;
  float* out;
  RONDO_HOST_DEVICE void operator()(int64_t i) const { out[i] = in[i] * factors[i / features]; }
};

// i: of the rows.
struct Shares {
  int64_t positions;
  const float* in;
  float* out;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    const float* row = in + i * positions;
    float ones = 0.0f;
    for (int64_t p = 0; p < positions; ++p) ones += row[p];
    const float share = static_cast<float>(positions) / ones;  // infinite where there are none: NaN below
    for (int64_t p = 0; p < positions; ++p) out[i * positions + p] = row[p] * share;
  }
};

// i: of the scores.
struct Hide {
  int64_t heads, queries, keys;
  const float *scores, *query_mask, *key_mask;
  float* out;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t line = i / keys, row = line / (heads * queries);
    const bool query = query_mask == nullptr || query_mask[row * queries + line % queries] != 0.0f;
    const bool key = key_mask == nullptr || key_mask[row * keys + i % keys] != 0.0f;
    out[i] = scores[i] + (query && key ? 0.0f : -1e9f);
  }
};

}  // namespace rondo::mask
