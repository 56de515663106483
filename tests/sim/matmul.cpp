#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/sim/numbers.h"

namespace rondo::sim {
namespace {

constexpr int64_t kRows = 6;  // of a tile of c that stays in registers
constexpr int64_t kColumns = 16;
constexpr int64_t kDepth = 256;
constexpr int64_t kPanel = 96;  // rows of a packed at once

// tile = packed rows * packed columns.
using RunTile = void (*)(int64_t depth, const float* a, const float* b, float* tile);

__attribute__((target("avx2,fma"))) void run_tile_avx2(int64_t depth, const float* a, const float* b,
                                                       float* tile) {
  __m256 sums[kRows][2];
#pragma GCC unroll 6
  for (int64_t i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  for (int64_t l = 0; l < depth; ++l) {
    const __m256 left = _mm256_loadu_ps(b + l * kColumns);
    const __m256 right = _mm256_loadu_ps(b + l * kColumns + 8);
#pragma GCC unroll 6
    for (int64_t i = 0; i < kRows; ++i) {
      const __m256 value = _mm256_broadcast_ss(a + l * kRows + i);
      sums[i][0] = _mm256_fmadd_ps(value, left, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(value, right, sums[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(tile + i * kColumns, sums[i][0]);
    _mm256_storeu_ps(tile + i * kColumns + 8, sums[i][1]);
  }
}

void run_tile_plain(int64_t depth, const float* a, const float* b, float* tile) {
  std::fill_n(tile, kRows * kColumns, 0.0f);
  for (int64_t l = 0; l < depth; ++l) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        tile[i * kColumns + j] = std::fma(a[l * kRows + i], b[l * kColumns + j], tile[i * kColumns + j]);
      }
    }
  }
}

void pack_rows(const Matrix& a, int64_t i0, int64_t rows, int64_t l0, int64_t depth, float* to) {
  for (int64_t block = 0; block < rows; block += kRows) {
    for (int64_t l = 0; l < depth; ++l) {
      for (int64_t i = 0; i < kRows; ++i) {
        *to++ = block + i < rows ? a.data[(i0 + block + i) * a.row + (l0 + l) * a.column] : 0.0f;
      }
    }
  }
}

void pack_columns(const Matrix& b, int64_t l0, int64_t depth, int64_t columns, float* to) {
  for (int64_t block = 0; block < columns; block += kColumns) {
    const int64_t width = std::min(kColumns, columns - block);
    for (int64_t l = 0; l < depth; ++l, to += kColumns) {
      const float* from = b.data + (l0 + l) * b.row + block * b.column;
      for (int64_t j = 0; j < width; ++j) to[j] = from[j * b.column];
      for (int64_t j = width; j < kColumns; ++j) to[j] = 0.0f;
    }
  }
}

int64_t rounded(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

void multiply(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, float* c, int64_t ldc,
              bool add) {
  if (!add || k == 0) {
    for (int64_t i = 0; i < m && !add; ++i) std::fill_n(c + i * ldc, n, 0.0f);
    if (k == 0) return;
  }
  std::vector<float> rows(static_cast<size_t>(rounded(kPanel, kRows) * kDepth));
  std::vector<float> columns(static_cast<size_t>(rounded(n, kColumns) * kDepth));
  float tile[kRows * kColumns];
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const RunTile run_tile = avx2 ? run_tile_avx2 : run_tile_plain;
  for (int64_t l0 = 0; l0 < k; l0 += kDepth) {
    const int64_t depth = std::min(kDepth, k - l0);
    pack_columns(b, l0, depth, n, columns.data());
    for (int64_t i0 = 0; i0 < m; i0 += kPanel) {
      const int64_t panel = std::min(kPanel, m - i0);
      pack_rows(a, i0, panel, l0, depth, rows.data());
      for (int64_t j = 0; j < n; j += kColumns) {
        for (int64_t i = 0; i < panel; i += kRows) {
          run_tile(depth, rows.data() + i * depth, columns.data() + j * depth, tile);
          const int64_t height = std::min(kRows, panel - i);
          const int64_t width = std::min(kColumns, n - j);
          for (int64_t y = 0; y < height; ++y) {
            float* to = c + (i0 + i + y) * ldc + j;
            for (int64_t x = 0; x < width; ++x) to[x] += tile[y * kColumns + x];
          }
        }
      }
    }
  }
}

}  // namespace rondo::sim
