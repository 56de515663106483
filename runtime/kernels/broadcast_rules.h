// The loops of broadcast.h and constraint.h, written once and compiled for hosts and for CUDA: element i of
// each.
#pragma once

#include <cstdint>

#include "runtime/base/functors.h"

namespace rondo::spread {

// Axes of a walk: index i of the outer ones stands at `at(i)` of one tensor.
struct Axes {
  int rank = 0;
  int64_t extents[6] = {};
  int64_t strides[6] = {};
  int64_t count = 1;

  void add(int64_t extent, int64_t stride) {
    extents[rank] = extent;
    strides[rank++] = stride;
    count *= extent;
  }
  RONDO_HOST_DEVICE int64_t at(int64_t i) const {
    int64_t place = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t above = i / extents[axis];
      place += (i - above * extents[axis]) * strides[axis];
      i = above;
    }
    return place;
  }
};

// i: of the output.
struct Spread {
  Axes axes;  // the output's, in the input
  const float* in;
  float* out;
  RONDO_HOST_DEVICE void operator()(int64_t i) const { out[i] = in[axes.at(i)]; }
};

// i: of the input, whose copies stand at kept.at(i) + repeated.at(j).
struct Sum {
  Axes kept, repeated;
  const float* out;
  float* in;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    const float* first = out + kept.at(i);
    double sum = 0.0;
    for (int64_t j = 0; j < repeated.count; ++j) sum += static_cast<double>(first[repeated.at(j)]);
    in[i] = static_cast<float>(sum);
  }
};

struct PreluForward {
  Axes axes;  // the input's, in alpha
  const float *in, *alpha;
  float* out;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    const float x = in[i];
    out[i] = x > 0.0f ? x : alpha[axes.at(i)] * x;
  }
};

struct PreluInput {
  Axes axes;
  const float *in, *alpha, *dy;
  float* dx;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    dx[i] = in[i] > 0.0f ? dy[i] : alpha[axes.at(i)] * dy[i];
  }
};

// i: of alpha.
struct PreluAlpha {
  Axes kept, repeated;  // in the input
  const float *in, *dy;
  float* d_alpha;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t first = kept.at(i);
    double sum = 0.0;
    for (int64_t j = 0; j < repeated.count; ++j) {
      const int64_t at = first + repeated.at(j);
      const float x = in[at];
      if (!(x > 0.0f)) sum += static_cast<double>(dy[at] * x);
    }
    d_alpha[i] = static_cast<float>(sum);
  }
};

// i: of the weights.
struct NonNegative {
  const int32_t* skip;
  float* w;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    if (skip == nullptr || *skip == 0) w[i] = w[i] >= 0.0f ? w[i] : 0.0f;
  }
};

// i: of the groups of weights that share a norm. The factor is (a clip(norm, low, high) + b norm + c) / (1e-7
// + norm).
struct Norm {
  Axes kept, group;
  double low, high, a, b, c;
  const int32_t* skip;
  float* w;
  RONDO_HOST_DEVICE void operator()(int64_t i) const {
    if (skip != nullptr && *skip != 0) return;
    float* first = w + kept.at(i);
    double squares = 0.0;
    for (int64_t j = 0; j < group.count; ++j) {
      const auto value = static_cast<double>(first[group.at(j)]);
      squares += value * value;
    }
    const double norm = std::sqrt(squares);
    const double cut = norm < low ? low : norm > high ? high : norm;
    const auto factor = static_cast<float>((a * cut + b * norm + c) / (1e-7 + norm));
    for (int64_t j = 0; j < group.count; ++j) first[group.at(j)] *= factor;
  }
};

}  // namespace rondo::spread
