// What several kernels ask about a row, by a team.
#pragma once

#include <cmath>

#include "runtime/kernels/cuda/launch.h"

namespace rondo::cuda {

RONDO_DEVICE inline float row_maximum(const float* x, int64_t count, const Team& team) {
  float most = -HUGE_VALF;
  for (int64_t i = team.rank(); i < count; i += team.size()) most = x[i] > most ? x[i] : most;
  return team.max(most);
}
RONDO_DEVICE inline double row_exponentials(const float* x, int64_t count, float shift, const Team& team) {
  double sum = 0.0;
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    sum += static_cast<double>(std::exp(x[i] - shift));
  }
  return team.sum(sum);
}

}  // namespace rondo::cuda
