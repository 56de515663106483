#pragma once

#include <cstdint>

namespace rondo {
enum class Binary : uint8_t;
}

namespace rondo::cpu {

// The functions of runtime/kernels/arrange.h as flat loops; `a` and `b` are of the weighted sum.
void binary_forward(Binary function, float a, float b, const float* x, const float* y, float* out,
                    int64_t count);
void binary_backward(Binary function, float a, float b, const float* x, const float* y, const float* dout,
                     float* dx, float* dy, int64_t count);

// l1 sum |w| + l2 sum w^2 in float64, and grad += l1 sign(w) + 2 l2 w.
double penalty(double l1, double l2, const float* w, int64_t count);
void add_penalty_gradient(float l1, float l2, const float* w, float* grad, int64_t count);

}  // namespace rondo::cpu
