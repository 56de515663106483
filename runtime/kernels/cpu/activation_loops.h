// The activations of runtime/base/activations.h as flat loops.
#pragma once

#include <cstdint>

namespace rondo {
struct ActivationFunction;
}

namespace rondo::cpu {

// y = f(x); in place is fine.
void activation_forward(const ActivationFunction& f, const float* x, float* y, int64_t count);
// dx = dy f'(x), where `kept` is what the derivative is given in terms of: the result, or the input.
void activation_backward(const ActivationFunction& f, const float* dy, const float* kept, float* dx,
                         int64_t count);

}  // namespace rondo::cpu
