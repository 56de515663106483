// Flat loops over floats, compiled for several instruction sets and chosen when the program is loaded.
#pragma once

#include <cstdint>

#include "runtime/base/functors.h"

// On x86-64 the compiler emits one clone for each instruction set. (Thread sanitizers run before the loader's
// choice works.)
#if defined(__x86_64__) && defined(__ELF__) && !defined(__SANITIZE_THREAD__)
#define RONDO_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RONDO_CLONES
#endif

namespace rondo::cpu {

// y = f(x), and dx = dy f'(x) from y; in place is fine.
void relu_forward(const float* x, float* y, int64_t count);
void sigmoid_forward(const float* x, float* y, int64_t count);
void tanh_forward(const float* x, float* y, int64_t count);
void relu_backward(const float* dy, const float* y, float* dx, int64_t count);
void sigmoid_backward(const float* dy, const float* y, float* dx, int64_t count);
void tanh_backward(const float* dy, const float* y, float* dx, int64_t count);

void add_floats(const float* a, const float* b, float* out, int64_t count);
// y = mask ? x * scale : 0, mask one byte (0 or 1) for each element.
void apply_mask(const float* x, const uint8_t* mask, float scale, float* y, int64_t count);

float max_float(const float* x, int64_t count);
// y = exp(x - shift); returns the sum in float64, in an order that depends on `count` alone.
double exp_shifted(const float* x, float shift, float* y, int64_t count);
// y = x * scale
void scale_floats(const float* x, float scale, float* y, int64_t count);
double sum_floats(const float* x, int64_t count);
double dot_floats(const float* x, const float* y, int64_t count);
// dx = y * (dy - dot), the tail of a softmax gradient.
void softmax_backward_row(const float* y, const float* dy, float dot, float* dx, int64_t count);

}  // namespace rondo::cpu
