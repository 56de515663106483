// Sums over the rows of (rows, channels) for kernels: what columns.cu describes.
#pragma once

#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {

struct Parts {
  int64_t rows, channels, count;  // of parts
  int64_t each;                   // rows of a part
};

inline Parts cut(int64_t rows, int64_t channels) {
  const int64_t count = column_parts(rows, channels);
  return {rows, channels, count, (rows + count - 1) / count};
}

// Task i is channel i % channels of part i / channels. `Value` gives the terms of one element for up to two
// sums.
template <class Value>
struct ColumnParts {
  Value value;
  Parts cut;
  double* first;
  double* second;  // null: one sum
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t part = i / cut.channels, c = i - part * cut.channels;
    const int64_t begin = part * cut.each, end = begin + cut.each < cut.rows ? begin + cut.each : cut.rows;
    double a = 0.0, b = 0.0;
    for (int64_t r = begin; r < end; ++r) value(r * cut.channels + c, c, a, b);
    first[i] = a;
    if (second != nullptr) second[i] = b;
  }
};

RONDO_DEVICE inline double column_total(const double* parts, const Parts& cut, int64_t c, const Team& team) {
  double sum = 0.0;
  for (int64_t p = team.rank(); p < cut.count; p += team.size()) sum += parts[p * cut.channels + c];
  return team.sum(sum);
}

// The channel of element i; `narrow` where i fits 32 bits, whose division is faster.
RONDO_DEVICE inline int64_t column_of(int64_t i, int64_t channels, bool narrow) {
  return narrow ? static_cast<int64_t>(static_cast<uint32_t>(i) % static_cast<uint32_t>(channels))
                : i % channels;
}

// Sums of the gradient of a normalization's result, and of its products with the normalized input: the
// gradients of beta and gamma. Keeps the totals in the places of the first part.
struct GradientTotals {
  Parts cut;
  double *betas, *gammas;
  float *d_beta, *d_gamma;
  RONDO_DEVICE void operator()(int64_t c, const Team& team) const {
    const double beta = column_total(betas, cut, c, team), gamma = column_total(gammas, cut, c, team);
    if (team.rank() != 0) return;
    betas[c] = beta;
    gammas[c] = gamma;
    if (d_beta != nullptr) d_beta[c] = static_cast<float>(beta);
    if (d_gamma != nullptr) d_gamma[c] = static_cast<float>(gamma);
  }
};

}  // namespace rondo::cuda
