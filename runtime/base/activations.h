// The element-wise activations beyond relu, sigmoid and tanh, written once and compiled for host loops and
// for CUDA. Formulas of tf.keras 2.x.
//
// `Math` gives exp, log1p, expm1 and erf of floats: the standard library's, or ones that the compiler
// vectorizes. Derivatives are given in terms of the result y = f(x) where it determines them, else of x
// (swish, gelu).
#pragma once

#include <cmath>
#include <limits>

#include "runtime/base/functors.h"

namespace rondo {

// A function with its parameters. An Activation converts to it where it has none.
struct ActivationFunction {
  Activation kind = Activation::kLinear;
  float alpha = 0.0f;  // kElu: the factor; kClippedRelu: the slope below the threshold
  float max_value = std::numeric_limits<float>::infinity();  // kClippedRelu
  float threshold = 0.0f;                                    // kClippedRelu, at least 0

  constexpr ActivationFunction() = default;
  constexpr ActivationFunction(Activation plain)
      : kind(plain), alpha(plain == Activation::kElu ? 1.0f : 0.0f) {}
  static constexpr ActivationFunction elu(float alpha) {
    ActivationFunction f(Activation::kElu);
    f.alpha = alpha;
    return f;
  }
  static constexpr ActivationFunction clipped_relu(float max_value, float slope, float threshold) {
    ActivationFunction f(Activation::kClippedRelu);
    f.max_value = max_value;
    f.alpha = slope;
    f.threshold = threshold;
    return f;
  }
  bool operator==(const ActivationFunction&) const = default;
};

// The derivative needs x: the result does not determine it.
constexpr bool derived_from_input(Activation kind) {
  return kind == Activation::kSwish || kind == Activation::kGelu;
}
// f(0) = 0.
constexpr bool keeps_zero(const ActivationFunction& f) {
  return f.kind != Activation::kSigmoid && f.kind != Activation::kSoftplus &&
         f.kind != Activation::kHardSigmoid && f.kind != Activation::kExponential &&
         !(f.kind == Activation::kClippedRelu && f.threshold * f.alpha != 0.0f);
}

struct StandardMath {
  RONDO_HOST_DEVICE static float exp(float x) { return std::exp(x); }
  RONDO_HOST_DEVICE static float log1p(float x) { return std::log1p(x); }
  RONDO_HOST_DEVICE static float expm1(float x) { return std::expm1(x); }
  RONDO_HOST_DEVICE static float erf(float x) { return std::erf(x); }
};

// x above 0, alpha (e^x - 1) below.
template <class Math>
struct Elu {
  float alpha;
  RONDO_HOST_DEVICE float forward(float x) const { return x > 0.0f ? x : alpha * Math::expm1(x); }
  RONDO_HOST_DEVICE float backward(float dy, float y) const { return y > 0.0f ? dy : dy * (y + alpha); }
};
// Klambauer et al. 2017: elu, scaled so that unit variance is kept.
template <class Math>
struct Selu {
  static constexpr float kScale = 1.0507009873554805f, kAlpha = 1.6732632423543772f;
  RONDO_HOST_DEVICE float forward(float x) const {
    return x > 0.0f ? kScale * x : kScale * kAlpha * Math::expm1(x);
  }
  RONDO_HOST_DEVICE float backward(float dy, float y) const {
    return y > 0.0f ? dy * kScale : dy * (y + kScale * kAlpha);
  }
};
// ln(1 + e^x), whose derivative is 1 - e^-y.
template <class Math>
struct Softplus {
  RONDO_HOST_DEVICE float forward(float x) const {
    return (x > 0.0f ? x : 0.0f) + Math::log1p(Math::exp(-std::fabs(x)));
  }
  RONDO_HOST_DEVICE float backward(float dy, float y) const { return -dy * Math::expm1(-y); }
};
// x / (1 + |x|), whose derivative is (1 - |y|)^2.
struct Softsign {
  RONDO_HOST_DEVICE float forward(float x) const { return x / (1.0f + std::fabs(x)); }
  RONDO_HOST_DEVICE float backward(float dy, float y) const {
    const float rest = 1.0f - std::fabs(y);
    return dy * rest * rest;
  }
};
// 0.2 x + 0.5 between 0 and 1.
struct HardSigmoid {
  RONDO_HOST_DEVICE float forward(float x) const {
    const float line = 0.2f * x + 0.5f;
    const float low = line < 0.0f ? 0.0f : line;
    return low > 1.0f ? 1.0f : low;
  }
  RONDO_HOST_DEVICE float backward(float dy, float y) const {
    return y > 0.0f && y < 1.0f ? 0.2f * dy : 0.0f;
  }
};
template <class Math>
struct Exponential {
  RONDO_HOST_DEVICE float forward(float x) const { return Math::exp(x); }
  RONDO_HOST_DEVICE float backward(float dy, float y) const { return dy * y; }
};
// x sigmoid(x). From x.
template <class Math>
struct Swish {
  RONDO_HOST_DEVICE float forward(float x) const { return x / (1.0f + Math::exp(-x)); }
  RONDO_HOST_DEVICE float backward(float dy, float x) const {
    const float s = 1.0f / (1.0f + Math::exp(-x));
    return dy * s * (1.0f + x * (1.0f - s));
  }
};
// x Phi(x) with the normal distribution's exact Phi. From x.
template <class Math>
struct Gelu {
  static constexpr float kRootHalf = 0.70710678118654752f, kDensity = 0.39894228040143268f;
  RONDO_HOST_DEVICE float forward(float x) const { return 0.5f * x * (1.0f + Math::erf(x * kRootHalf)); }
  RONDO_HOST_DEVICE float backward(float dy, float x) const {
    const float phi = kDensity * Math::exp(-0.5f * x * x);
    return dy * (0.5f * (1.0f + Math::erf(x * kRootHalf)) + x * phi);
  }
};
// max_value from there on, x from the threshold on, slope (x - threshold) below. No gradient at max_value
// and, without a slope, at the threshold.
struct ClippedRelu {
  float max_value, slope, threshold;
  RONDO_HOST_DEVICE float forward(float x) const {
    const float bounded = x < max_value ? x : (x >= max_value ? max_value : x);  // keeps NaN
    return x < threshold ? slope * (x - threshold) : bounded;
  }
  RONDO_HOST_DEVICE float backward(float dy, float y) const {
    if (y >= max_value) return 0.0f;
    return y >= threshold && y > 0.0f ? dy : slope * dy;
  }
};

// Calls go(functor) with the functor of `f`. Linear, relu, sigmoid and tanh are the caller's.
template <class Math, class Go>
void with_activation(const ActivationFunction& f, const Go& go) {
  switch (f.kind) {
    case Activation::kElu:
      return go(Elu<Math>{f.alpha});
    case Activation::kSelu:
      return go(Selu<Math>{});
    case Activation::kSoftplus:
      return go(Softplus<Math>{});
    case Activation::kSoftsign:
      return go(Softsign{});
    case Activation::kHardSigmoid:
      return go(HardSigmoid{});
    case Activation::kExponential:
      return go(Exponential<Math>{});
    case Activation::kSwish:
      return go(Swish<Math>{});
    case Activation::kGelu:
      return go(Gelu<Math>{});
    case Activation::kClippedRelu:
      return go(ClippedRelu{f.max_value, f.alpha, f.threshold});
    case Activation::kLinear:
    case Activation::kRelu:
    case Activation::kSigmoid:
    case Activation::kTanh:
      return;
  }
}

}  // namespace rondo
