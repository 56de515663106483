// Sums over the rows of (rows, channels), and batch normalization on top of them.
//
// Neighbouring threads take neighbouring channels, so that loads are whole lines; the rows are cut into parts
// whose partial sums (in float64) are added in order: the same bits in every run.
#include "runtime/kernels/cuda/column_parts.h"
#include "runtime/kernels/cuda/element_math.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);

template <class T>
struct Plain {
  const T* x;
  RONDO_DEVICE void operator()(int64_t i, int64_t, double& a, double&) const {
    a += static_cast<double>(as_float(x[i]));
  }
};

struct ColumnSum {
  const double* parts;
  Parts cut;
  float* out;
  RONDO_DEVICE void operator()(int64_t c, const Team& team) const {
    const double sum = column_total(parts, cut, c, team);
    if (team.rank() == 0) out[c] = static_cast<float>(sum);
  }
};

// Sum and sum of squares: in float64 their difference keeps the variance exact enough for means up to some
// 10^4 deviations.
template <class T>
struct Moments {
  const T* x;
  RONDO_DEVICE void operator()(int64_t i, int64_t, double& a, double& b) const {
    const auto v = static_cast<double>(as_float(x[i]));
    a += v;
    b += v * v;
  }
};

struct Statistics {
  NormArrays norm;
  MovingStatistics moving;
  Parts cut;
  const double *sums, *squares;
  RONDO_DEVICE void operator()(int64_t c, const Team& team) const {
    const auto n = static_cast<double>(cut.rows);
    const double mean = column_total(sums, cut, c, team) / n;
    const double spread = column_total(squares, cut, c, team) / n - mean * mean;
    const double variance = spread < 0.0 ? 0.0 : spread;  // keeps NaN
    if (team.rank() != 0) return;
    norm.mean[c] = static_cast<float>(mean);
    norm.scale[c] = static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(norm.epsilon)));
    const float keep = moving.momentum, take = 1.0f - moving.momentum;
    moving.mean[c] = keep * moving.mean[c] + take * static_cast<float>(mean);
    moving.variance[c] =
        keep * moving.variance[c] + take * (static_cast<float>(variance) * moving.correction);
  }
};

template <class T>
struct Normalize {
  NormArrays norm;
  const T* x;
  T* y;
  bool narrow;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = column_of(i, norm.channels, narrow);
    const float gamma = norm.gamma != nullptr ? norm.gamma[c] : 1.0f;
    const float beta = norm.beta != nullptr ? norm.beta[c] : 0.0f;
    y[i] = rounded<T>(gamma * ((as_float(x[i]) - norm.mean[c]) * norm.scale[c]) + beta);
  }
};

template <class T>
struct NormalizeMoving {
  NormArrays norm;
  const float *mean, *variance;
  const T* x;
  T* y;
  bool narrow;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = column_of(i, norm.channels, narrow);
    const float gamma = norm.gamma != nullptr ? norm.gamma[c] : 1.0f;
    const float beta = norm.beta != nullptr ? norm.beta[c] : 0.0f;
    y[i] = rounded<T>(gamma * ((as_float(x[i]) - mean[c]) / std::sqrt(variance[c] + norm.epsilon)) + beta);
  }
};

// Sums of dy and of dy * xhat, xhat the normalized input: the gradients of beta and gamma.
template <class T>
struct GradientTerms {
  NormArrays norm;
  const T *x, *dy;
  RONDO_DEVICE void operator()(int64_t i, int64_t c, double& a, double& b) const {
    const auto g = static_cast<double>(as_float(dy[i]));
    a += g;
    b += g * static_cast<double>((as_float(x[i]) - norm.mean[c]) * norm.scale[c]);
  }
};

// dx = gamma / deviation * (dy - (sum(dy) + xhat sum(dy xhat)) / n)
template <class T>
struct InputGradient {
  NormArrays norm;
  const double *betas, *gammas;
  const T *x, *dy;
  T* dx;
  bool narrow;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = column_of(i, norm.channels, narrow);
    const float gamma = norm.gamma != nullptr ? norm.gamma[c] : 1.0f;
    const float share = 1.0f / static_cast<float>(norm.rows);
    const float normal = (as_float(x[i]) - norm.mean[c]) * norm.scale[c];
    const float mean_dy = static_cast<float>(betas[c]) * share;
    const float mean_product = static_cast<float>(gammas[c]) * share;
    dx[i] = rounded<T>(gamma * norm.scale[c] * (as_float(dy[i]) - mean_dy - normal * mean_product));
  }
};

}  // namespace

int64_t column_parts(int64_t rows, int64_t channels) {
  constexpr int64_t kThreads = 131072;  // half of what an H200 holds at a time
  const int64_t wanted = kThreads / (channels < kThreads ? channels : kThreads);
  const int64_t most = (rows + 7) / 8;  // at least 8 rows for each
  const int64_t parts = wanted < most ? wanted : most;
  return parts < 1 ? 1 : parts;
}

template <class T>
void column_sums(cudaStream_t stream, const T* x, int64_t rows, int64_t channels, double* parts, float* out) {
  const Parts split = cut(rows, channels);
  const int64_t tasks = split.count * channels;
  launch_elements("column sums", stream, tasks,
                  {reads(x, rows * channels * kBytesOf<T>), writes(parts, tasks * kDouble)},
                  ColumnParts<Plain<T>>{{x}, split, parts, nullptr});
  launch_teams("column totals", stream, channels, team_for(split.count),
               {reads(parts, tasks * kDouble), writes(out, channels * kFloat)}, ColumnSum{parts, split, out});
}

template <class T>
void batch_norm_statistics(cudaStream_t stream, const NormArrays& norm, const MovingStatistics& moving,
                           const T* x) {
  const Parts split = cut(norm.rows, norm.channels);
  const int64_t tasks = split.count * norm.channels, count = norm.rows * norm.channels;
  const int64_t channels = norm.channels * kFloat;
  double *sums = norm.parts, *squares = norm.parts + tasks;
  launch_elements("batch moments", stream, tasks,
                  {reads(x, count * kBytesOf<T>), writes(norm.parts, 2 * tasks * kDouble)},
                  ColumnParts<Moments<T>>{{x}, split, sums, squares});
  launch_teams("batch statistics", stream, norm.channels, team_for(split.count),
               {reads(norm.parts, 2 * tasks * kDouble), reads(moving.mean, channels),
                reads(moving.variance, channels), writes(norm.mean, channels), writes(norm.scale, channels),
                writes(moving.mean, channels), writes(moving.variance, channels)},
               Statistics{norm, moving, split, sums, squares});
}

template <class T>
void batch_norm_training(cudaStream_t stream, const NormArrays& norm, const MovingStatistics& moving,
                         const T* x, T* y) {
  batch_norm_statistics(stream, norm, moving, x);
  const int64_t count = norm.rows * norm.channels, channels = norm.channels * kFloat;
  launch_elements("batch normalization", stream, count,
                  {reads(norm.mean, channels), reads(norm.scale, channels),
                   reads(norm.gamma, norm.gamma != nullptr ? channels : 0),
                   reads(norm.beta, norm.beta != nullptr ? channels : 0), reads(x, count * kBytesOf<T>),
                   writes(y, count * kBytesOf<T>)},
                  Normalize<T>{norm, x, y, count < int64_t{1} << 32});
}

template <class T>
void batch_norm_inference(cudaStream_t stream, const NormArrays& norm, const float* mean,
                          const float* variance, const T* x, T* y) {
  const int64_t count = norm.rows * norm.channels, channels = norm.channels * kFloat;
  launch_elements("normalization", stream, count,
                  {reads(mean, channels), reads(variance, channels),
                   reads(norm.gamma, norm.gamma != nullptr ? channels : 0),
                   reads(norm.beta, norm.beta != nullptr ? channels : 0), reads(x, count * kBytesOf<T>),
                   writes(y, count * kBytesOf<T>)},
                  NormalizeMoving<T>{norm, mean, variance, x, y, count < int64_t{1} << 32});
}

template <class T>
void batch_norm_backward(cudaStream_t stream, const NormArrays& norm, const T* x, const T* dy, T* dx,
                         float* d_gamma, float* d_beta) {
  const Parts split = cut(norm.rows, norm.channels);
  const int64_t tasks = split.count * norm.channels, count = norm.rows * norm.channels;
  const int64_t channels = norm.channels * kFloat;
  double *betas = norm.parts, *gammas = norm.parts + tasks;
  launch_elements("batch norm gradient sums", stream, tasks,
                  {reads(norm.mean, channels), reads(norm.scale, channels), reads(x, count * kBytesOf<T>),
                   reads(dy, count * kBytesOf<T>), writes(norm.parts, 2 * tasks * kDouble)},
                  ColumnParts<GradientTerms<T>>{{norm, x, dy}, split, betas, gammas});
  launch_teams(
      "batch norm gradient totals", stream, norm.channels, team_for(split.count),
      {reads(norm.parts, 2 * tasks * kDouble), writes(norm.parts, 2 * tasks * kDouble),
       writes(d_beta, d_beta != nullptr ? channels : 0), writes(d_gamma, d_gamma != nullptr ? channels : 0)},
      GradientTotals{split, betas, gammas, d_beta, d_gamma});
  launch_elements(
      "batch norm gradient", stream, count,
      {reads(norm.parts, 2 * tasks * kDouble), reads(norm.mean, channels), reads(norm.scale, channels),
       reads(norm.gamma, norm.gamma != nullptr ? channels : 0), reads(x, count * kBytesOf<T>),
       reads(dy, count * kBytesOf<T>), writes(dx, count * kBytesOf<T>)},
      InputGradient<T>{norm, betas, gammas, x, dy, dx, count < int64_t{1} << 32});
}

#define INSTANTIATE(T)                                                                                       \
  template void column_sums(cudaStream_t, const T*, int64_t, int64_t, double*, float*);                      \
  template void batch_norm_statistics(cudaStream_t, const NormArrays&, const MovingStatistics&, const T*);   \
  template void batch_norm_training(cudaStream_t, const NormArrays&, const MovingStatistics&, const T*, T*); \
  template void batch_norm_inference(cudaStream_t, const NormArrays&, const float*, const float*, const T*,  \
                                     T*);                                                                    \
  template void batch_norm_backward(cudaStream_t, const NormArrays&, const T*, const T*, T*, float*, float*);
RONDO_FOR_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace rondo::cuda
