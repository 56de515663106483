#include "runtime/kernels/cpu/activation_loops.h"

#include "runtime/base/activations.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/vector_math.h"

namespace rondo::cpu {
namespace {

struct VectorMath {
  static float exp(float x) { return vector_exp(x); }
  static float log1p(float x) { return std::log1p(x); }
  static float expm1(float x) { return vector_expm1(x); }
  static float erf(float x) { return vector_erf(x); }
};

// A clone for each instruction set, as of the other loops; inlining puts the functor into it.
template <class F>
RONDO_CLONES void forward_loop(F f, const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = f.forward(x[i]);
}
template <class F>
RONDO_CLONES void backward_loop(F f, const float* dy, const float* kept, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = f.backward(dy[i], kept[i]);
}

struct Linear {
  float forward(float x) const { return x; }
  float backward(float dy, float) const { return dy; }
};
struct VectorSigmoid {
  float forward(float x) const { return vector_sigmoid(x); }
  float backward(float dy, float y) const { return Sigmoid().backward(dy, y); }
};
struct VectorTanh {
  float forward(float x) const { return vector_tanh(x); }
  float backward(float dy, float y) const { return Tanh().backward(dy, y); }
};

template <class Go>
void with_any(const ActivationFunction& f, const Go& go) {
  switch (f.kind) {
    case Activation::kLinear:
      return go(Linear{});
    case Activation::kRelu:
      return go(Relu{});
    case Activation::kSigmoid:
      return go(VectorSigmoid{});
    case Activation::kTanh:
      return go(VectorTanh{});
    default:
      return with_activation<VectorMath>(f, go);
  }
}

}  // namespace

void activation_forward(const ActivationFunction& f, const float* x, float* y, int64_t count) {
  with_any(f, [&](auto functor) { forward_loop(functor, x, y, count); });
}

void activation_backward(const ActivationFunction& f, const float* dy, const float* kept, float* dx,
                         int64_t count) {
  with_any(f, [&](auto functor) { backward_loop(functor, dy, kept, dx, count); });
}

}  // namespace rondo::cpu
