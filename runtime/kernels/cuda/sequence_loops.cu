#include "runtime/kernels/cuda/sequence_loops.h"

#include <cmath>

#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/sequence.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);

struct Gather {
  Embedding e;
  const float* table;
  float* out;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t at = i / e.width, column = i - at * e.width;
    const float number = e.indices[at];
    const bool good =
        number >= 0.0f && number < static_cast<float>(e.entries) && number == std::floor(number);
    out[i] = good ? table[static_cast<int64_t>(number) * e.width + column] : std::nanf("");
  }
};

// A team owns a range of the table: it looks through all indices for its rows, in their order, so that every
// sum is added in one order.
struct Scatter {
  Embedding e;
  int64_t range;
  const float* dy;
  float* d_table;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    const int64_t begin = task * range, end = begin + range < e.entries ? begin + range : e.entries;
    for (int64_t i = begin * e.width + team.rank(); i < end * e.width; i += team.size()) d_table[i] = 0.0f;
    team.synchronize();
    for (int64_t at = 0; at < e.count; ++at) {
      const float number = e.indices[at];
      if (!(number >= static_cast<float>(begin) && number < static_cast<float>(end))) continue;
      const int64_t row = static_cast<int64_t>(number) * e.width;
      for (int64_t c = team.rank(); c < e.width; c += team.size()) d_table[row + c] += dy[at * e.width + c];
    }
  }
};

struct Normalize {
  LayerNorm n;
  const float* x;
  float* y;
  RONDO_DEVICE void operator()(int64_t row, const Team& team) const {
    const float* in = x + row * n.channels;
    double sum = 0.0;
    for (int64_t c = team.rank(); c < n.channels; c += team.size()) sum += static_cast<double>(in[c]);
    const auto mean = static_cast<float>(team.sum(sum) / static_cast<double>(n.channels));
    double squares = 0.0;
    for (int64_t c = team.rank(); c < n.channels; c += team.size()) {
      const auto d = static_cast<double>(in[c] - mean);
      squares += d * d;
    }
    const double variance = team.sum(squares) / static_cast<double>(n.channels);
    const auto scale = static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(n.epsilon)));
    for (int64_t c = team.rank(); c < n.channels; c += team.size()) {
      float value = (in[c] - mean) * scale;
      if (n.gamma != nullptr) value *= n.gamma[c];
      if (n.beta != nullptr) value += n.beta[c];
      y[row * n.channels + c] = value;
    }
    if (n.statistics != nullptr && team.rank() == 0) {
      n.statistics[2 * row] = mean;
      n.statistics[2 * row + 1] = scale;
    }
  }
};

struct NormalizeGradient {
  LayerNorm n;
  const float *x, *dy;
  float* dx;
  RONDO_DEVICE void operator()(int64_t row, const Team& team) const {
    const float *in = x + row * n.channels, *slope = dy + row * n.channels;
    const float mean = n.statistics[2 * row], scale = n.statistics[2 * row + 1];
    double slopes = 0.0, products = 0.0;
    for (int64_t c = team.rank(); c < n.channels; c += team.size()) {
      const float g = n.gamma != nullptr ? slope[c] * n.gamma[c] : slope[c];
      slopes += static_cast<double>(g);
      products += static_cast<double>(g * ((in[c] - mean) * scale));
    }
    const auto mean_slope = static_cast<float>(team.sum(slopes) / static_cast<double>(n.channels));
    const auto mean_product = static_cast<float>(team.sum(products) / static_cast<double>(n.channels));
    for (int64_t c = team.rank(); c < n.channels; c += team.size()) {
      const float g = n.gamma != nullptr ? slope[c] * n.gamma[c] : slope[c];
      dx[row * n.channels + c] = scale * (g - mean_slope - (in[c] - mean) * scale * mean_product);
    }
  }
};

// Sums of a part of the rows, for each channel: of dy x_hat and of dy.
struct NormParts {
  LayerNorm n;
  int64_t rows;  // of a part
  const float *x, *dy;
  double* parts;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t part = i / n.channels, c = i - part * n.channels;
    const int64_t begin = part * rows, end = begin + rows < n.rows ? begin + rows : n.rows;
    double gamma = 0.0, beta = 0.0;
    for (int64_t row = begin; row < end; ++row) {
      const float slope = dy[row * n.channels + c];
      const float hat = (x[row * n.channels + c] - n.statistics[2 * row]) * n.statistics[2 * row + 1];
      gamma += static_cast<double>(slope * hat);
      beta += static_cast<double>(slope);
    }
    parts[part * 2 * n.channels + c] = gamma;
    parts[part * 2 * n.channels + n.channels + c] = beta;
  }
};

struct JoinNormParts {
  const double* parts;
  int64_t count, channels;
  float *d_gamma, *d_beta;
  RONDO_DEVICE void operator()(int64_t c) const {
    double gamma = 0.0, beta = 0.0;
    for (int64_t part = 0; part < count; ++part) {
      gamma += parts[part * 2 * channels + c];
      beta += parts[part * 2 * channels + channels + c];
    }
    if (d_gamma != nullptr) d_gamma[c] = static_cast<float>(gamma);
    if (d_beta != nullptr) d_beta[c] = static_cast<float>(beta);
  }
};

}  // namespace

void embedding_forward(cudaStream_t stream, const Embedding& e, const float* table, float* out) {
  launch_elements("embedding", stream, e.count * e.width,
                  {reads(e.indices, e.count * kFloat), reads(table, e.entries * e.width * kFloat),
                   writes(out, e.count * e.width * kFloat)},
                  Gather{e, table, out});
}

void embedding_backward(cudaStream_t stream, const Embedding& e, const float* dy, float* d_table) {
  const int64_t range = (e.entries + 511) / 512;  // two waves of teams on a large GPU
  const int64_t bytes = e.entries * e.width * kFloat;
  launch_teams("embedding gradient", stream, (e.entries + range - 1) / range, team_for(e.width),
               {reads(e.indices, e.count * kFloat), reads(dy, e.count * e.width * kFloat),
                reads(d_table, bytes), writes(d_table, bytes)},
               Scatter{e, range, dy, d_table});
}

void layer_norm_forward(cudaStream_t stream, const LayerNorm& n, const float* x, float* y) {
  const int64_t bytes = n.rows * n.channels * kFloat, vector = n.channels * kFloat;
  launch_teams("layer normalization", stream, n.rows, team_for(n.channels),
               {reads(x, bytes), reads(n.gamma, n.gamma != nullptr ? vector : 0),
                reads(n.beta, n.beta != nullptr ? vector : 0), writes(y, bytes),
                writes(n.statistics, n.statistics != nullptr ? 2 * n.rows * kFloat : 0)},
               Normalize{n, x, y});
}

int64_t layer_norm_parts(int64_t rows, int64_t channels) {
  const int64_t wanted = (1 << 16) / channels + 1;
  return wanted < rows ? wanted : rows;
}

void layer_norm_backward(cudaStream_t stream, const LayerNorm& n, const float* x, const float* dy,
                         double* parts, float* dx, float* d_gamma, float* d_beta) {
  const int64_t bytes = n.rows * n.channels * kFloat, vector = n.channels * kFloat;
  const int64_t statistics = 2 * n.rows * kFloat;
  launch_teams("layer normalization gradient", stream, n.rows, team_for(n.channels),
               {reads(x, bytes), reads(dy, bytes), reads(n.statistics, statistics),
                reads(n.gamma, n.gamma != nullptr ? vector : 0), writes(dx, bytes)},
               NormalizeGradient{n, x, dy, dx});
  if (d_gamma == nullptr && d_beta == nullptr) return;
  const int64_t count = layer_norm_parts(n.rows, n.channels), rows = (n.rows + count - 1) / count;
  const int64_t used = (n.rows + rows - 1) / rows;
  launch_elements("layer normalization sums", stream, used * n.channels,
                  {reads(x, bytes), reads(dy, bytes), reads(n.statistics, statistics),
                   writes(parts, used * 2 * n.channels * kDouble)},
                  NormParts{n, rows, x, dy, parts});
  launch_elements(
      "layer normalization parameters", stream, n.channels,
      {reads(parts, used * 2 * n.channels * kDouble), writes(d_gamma, d_gamma != nullptr ? vector : 0),
       writes(d_beta, d_beta != nullptr ? vector : 0)},
      JoinNormParts{parts, used, n.channels, d_gamma, d_beta});
}

}  // namespace rondo::cuda
