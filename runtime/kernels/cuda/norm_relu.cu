// y = max(0, norm(x) + addend): one pass behind the statistics, where three kernels would make three.
//
// Backward needs to know where y was positive. With an addend it reads y, and writes the gradient before the
// ReLU, which is the addend's, while it sums it. Without one it computes y's sign again from x, in the same
// expression as forward, and reads nothing else.
#include "runtime/base/functors.h"
#include "runtime/kernels/cuda/column_parts.h"
#include "runtime/kernels/cuda/element_math.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);

RONDO_DEVICE inline float scaled(const NormArrays& norm, float normal, int64_t c) {
  const float gamma = norm.gamma != nullptr ? norm.gamma[c] : 1.0f;
  const float beta = norm.beta != nullptr ? norm.beta[c] : 0.0f;
  return gamma * normal + beta;
}

RONDO_DEVICE inline float normal_of(const NormArrays& norm, float x, int64_t c) {
  return (x - norm.mean[c]) * norm.scale[c];
}

template <class T>
struct NormRelu {
  NormArrays norm;
  const T *x, *addend;
  T* y;
  bool narrow;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = column_of(i, norm.channels, narrow);
    const float value = scaled(norm, normal_of(norm, as_float(x[i]), c), c);
    y[i] = rounded<T>(Relu{}.forward(addend != nullptr ? value + as_float(addend[i]) : value));
  }
};

template <class T>
struct NormReluMoving {
  NormArrays norm;
  const float *mean, *variance;
  const T *x, *addend;
  T* y;
  bool narrow;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = column_of(i, norm.channels, narrow);
    const float value = scaled(norm, (as_float(x[i]) - mean[c]) / std::sqrt(variance[c] + norm.epsilon), c);
    y[i] = rounded<T>(Relu{}.forward(addend != nullptr ? value + as_float(addend[i]) : value));
  }
};

// The terms of the sums, see GradientTotals; with an addend also its gradient, which is kept.
template <class T>
struct AddedTerms {
  NormArrays norm;
  const T *x, *y, *dy;
  T* dz;
  RONDO_DEVICE void operator()(int64_t i, int64_t c, double& a, double& b) const {
    const float g = Relu{}.backward(as_float(dy[i]), as_float(y[i]));
    dz[i] = rounded<T>(g);
    a += static_cast<double>(g);
    b += static_cast<double>(g) * static_cast<double>(normal_of(norm, as_float(x[i]), c));
  }
};
template <class T>
struct PlainTerms {
  NormArrays norm;
  const T *x, *dy;
  RONDO_DEVICE void operator()(int64_t i, int64_t c, double& a, double& b) const {
    const float normal = normal_of(norm, as_float(x[i]), c);
    const auto g = static_cast<double>(Relu{}.backward(as_float(dy[i]), scaled(norm, normal, c)));
    a += g;
    b += g * static_cast<double>(normal);
  }
};

// dx = gamma / deviation * (dz - (sum(dz) + xhat sum(dz xhat)) / n), with dz in front of the ReLU: given, or
// made from dy.
template <class T>
struct NormReluInput {
  NormArrays norm;
  const double *betas, *gammas;
  const T *x, *gradient;
  bool masked;
  T* dx;
  bool narrow;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = column_of(i, norm.channels, narrow);
    const float gamma = norm.gamma != nullptr ? norm.gamma[c] : 1.0f;
    const float share = 1.0f / static_cast<float>(norm.rows);
    const float normal = normal_of(norm, as_float(x[i]), c);
    const float given = as_float(gradient[i]);
    const float dz = masked ? given : Relu{}.backward(given, scaled(norm, normal, c));
    const float mean_dz = static_cast<float>(betas[c]) * share;
    const float mean_product = static_cast<float>(gammas[c]) * share;
    dx[i] = rounded<T>(gamma * norm.scale[c] * (dz - mean_dz - normal * mean_product));
  }
};

bool fits_32_bits(int64_t count) {
  return count < int64_t{1} << 32;
}

}  // namespace

template <class T>
void norm_relu(cudaStream_t stream, const NormArrays& norm, const T* x, const T* addend, T* y) {
  const int64_t count = norm.rows * norm.channels, channels = norm.channels * kFloat;
  launch_elements(
      "normalization and ReLU", stream, count,
      {reads(norm.mean, channels), reads(norm.scale, channels),
       reads(norm.gamma, norm.gamma != nullptr ? channels : 0),
       reads(norm.beta, norm.beta != nullptr ? channels : 0), reads(x, count * kBytesOf<T>),
       reads(addend, addend != nullptr ? count * kBytesOf<T> : 0), writes(y, count * kBytesOf<T>)},
      NormRelu<T>{norm, x, addend, y, fits_32_bits(count)});
}

template <class T>
void norm_relu_inference(cudaStream_t stream, const NormArrays& norm, const float* mean,
                         const float* variance, const T* x, const T* addend, T* y) {
  const int64_t count = norm.rows * norm.channels, channels = norm.channels * kFloat;
  launch_elements(
      "normalization and ReLU", stream, count,
      {reads(mean, channels), reads(variance, channels),
       reads(norm.gamma, norm.gamma != nullptr ? channels : 0),
       reads(norm.beta, norm.beta != nullptr ? channels : 0), reads(x, count * kBytesOf<T>),
       reads(addend, addend != nullptr ? count * kBytesOf<T> : 0), writes(y, count * kBytesOf<T>)},
      NormReluMoving<T>{norm, mean, variance, x, addend, y, fits_32_bits(count)});
}

template <class T>
void norm_relu_backward(cudaStream_t stream, const NormArrays& norm, const T* x, const T* y, const T* dy,
                        const NormReluGradients<T>& gradients) {
  const Parts split = cut(norm.rows, norm.channels);
  const int64_t tasks = split.count * norm.channels, bytes = norm.rows * norm.channels * kBytesOf<T>;
  const int64_t channels = norm.channels * kFloat;
  const int64_t gamma = norm.gamma != nullptr ? channels : 0, beta = norm.beta != nullptr ? channels : 0;
  double *betas = norm.parts, *gammas = norm.parts + tasks;
  T* dz = gradients.addend;
  if (dz != nullptr) {
    launch_elements(
        "ReLU and norm gradient sums", stream, tasks,
        {reads(norm.mean, channels), reads(norm.scale, channels), reads(x, bytes), reads(y, bytes),
         reads(dy, bytes), writes(dz, bytes), writes(norm.parts, 2 * tasks * kDouble)},
        ColumnParts<AddedTerms<T>>{{norm, x, y, dy, dz}, split, betas, gammas});
  } else {
    launch_elements(
        "ReLU and norm gradient sums", stream, tasks,
        {reads(norm.mean, channels), reads(norm.scale, channels), reads(norm.gamma, gamma),
         reads(norm.beta, beta), reads(x, bytes), reads(dy, bytes), writes(norm.parts, 2 * tasks * kDouble)},
        ColumnParts<PlainTerms<T>>{{norm, x, dy}, split, betas, gammas});
  }
  launch_teams("norm gradient totals", stream, norm.channels, team_for(split.count),
               {reads(norm.parts, 2 * tasks * kDouble), writes(norm.parts, 2 * tasks * kDouble),
                writes(gradients.beta, gradients.beta != nullptr ? channels : 0),
                writes(gradients.gamma, gradients.gamma != nullptr ? channels : 0)},
               GradientTotals{split, betas, gammas, gradients.beta, gradients.gamma});
  const T* gradient = dz != nullptr ? dz : dy;
  launch_elements("ReLU and norm gradient", stream, norm.rows * norm.channels,
                  {reads(norm.parts, 2 * tasks * kDouble), reads(norm.mean, channels),
                   reads(norm.scale, channels), reads(norm.gamma, gamma), reads(norm.beta, beta),
                   reads(x, bytes), reads(gradient, bytes), writes(gradients.x, bytes)},
                  NormReluInput<T>{norm, betas, gammas, x, gradient, dz != nullptr, gradients.x,
                                   fits_32_bits(norm.rows * norm.channels)});
}

#define INSTANTIATE(T)                                                                                     \
  template void norm_relu(cudaStream_t, const NormArrays&, const T*, const T*, T*);                        \
  template void norm_relu_inference(cudaStream_t, const NormArrays&, const float*, const float*, const T*, \
                                    const T*, T*);                                                         \
  template void norm_relu_backward(cudaStream_t, const NormArrays&, const T*, const T*, const T*,          \
                                   const NormReluGradients<T>&);
RONDO_FOR_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace rondo::cuda
