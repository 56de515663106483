// Softmax and sums: one team for each row.
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/cuda/row_sums.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);

struct SumParts {
  const double* parts;
  int64_t count;
  double scale;
  double* out;
  RONDO_DEVICE void operator()(int64_t, const Team& team) const {
    double sum = 0.0;
    for (int64_t i = team.rank(); i < count; i += team.size()) sum += parts[i];
    sum = team.sum(sum);
    if (team.rank() == 0) *out = sum * scale;
  }
};

struct Softmax {
  const float* x;
  float* y;
  int64_t classes;
  RONDO_DEVICE void operator()(int64_t row, const Team& team) const {
    const float* in = x + row * classes;
    float* out = y + row * classes;
    const float shift = row_maximum(in, classes, team);
    const double sum = row_exponentials(in, classes, shift, team);
    const auto scale = static_cast<float>(1.0 / sum);
    for (int64_t i = team.rank(); i < classes; i += team.size()) out[i] = std::exp(in[i] - shift) * scale;
  }
};

// dx = y (dy - sum(y dy))
struct SoftmaxGradient {
  const float *y, *dy;
  float* dx;
  int64_t classes;
  RONDO_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t at = row * classes;
    double dot = 0.0;
    for (int64_t i = at + team.rank(); i < at + classes; i += team.size()) {
      dot += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    }
    const auto total = static_cast<float>(team.sum(dot));
    for (int64_t i = at + team.rank(); i < at + classes; i += team.size()) dx[i] = y[i] * (dy[i] - total);
  }
};

}  // namespace

void sum_parts(cudaStream_t stream, const double* parts, int64_t count, double scale, double* out) {
  launch_teams("sum", stream, 1, team_for(count), {reads(parts, count * kDouble), writes(out, kDouble)},
               SumParts{parts, count, scale, out});
}

void softmax_forward(cudaStream_t stream, const float* x, float* y, int64_t rows, int64_t classes) {
  const int64_t bytes = rows * classes * kFloat;
  launch_teams("softmax", stream, rows, team_for(classes), {reads(x, bytes), writes(y, bytes)},
               Softmax{x, y, classes});
}

void softmax_backward(cudaStream_t stream, const float* y, const float* dy, float* dx, int64_t rows,
                      int64_t classes) {
  const int64_t bytes = rows * classes * kFloat;
  launch_teams("softmax gradient", stream, rows, team_for(classes),
               {reads(y, bytes), reads(dy, bytes), writes(dx, bytes)}, SoftmaxGradient{y, dy, dx, classes});
}

}  // namespace rondo::cuda
