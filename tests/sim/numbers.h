// The number formats of the simulated libraries, as float.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo::sim {

enum class Format : uint8_t { kF32, kF16, kBf16 };

size_t size_of(Format format);
void load(Format format, const void* from, float* to, size_t count);
void store(Format format, const float* from, void* to, size_t count);
float load_one(Format format, const void* from, size_t at);

// One operand of a product: element (i, j) lies at data[i * row + j * column].
struct Matrix {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t column = 0;
};

// c[i * ldc + j] = sum over l of a(i, l) b(l, j), plus what was there when `add`. In the same order every
// time.
void multiply(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, float* c, int64_t ldc,
              bool add);

}  // namespace rondo::sim
