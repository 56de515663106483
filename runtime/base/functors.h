// Element-wise arithmetic, written once and compiled for host loops and for CUDA.
//
// Derivatives are given in terms of the result y = f(x), which is what a training step keeps.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define RONDO_HOST_DEVICE __host__ __device__
#else
#define RONDO_HOST_DEVICE
#endif

namespace rondo {

// Kernels with weights fuse the first four behind them; the others are in activations.h.
enum class Activation : uint8_t {
  kLinear,
  kRelu,
  kSigmoid,
  kTanh,
  kElu,
  kSelu,
  kSoftplus,
  kSoftsign,
  kHardSigmoid,
  kExponential,
  kSwish,
  kGelu,
  kClippedRelu,
};
constexpr bool fusible(Activation kind) {
  return kind <= Activation::kTanh;
}

struct Relu {
  RONDO_HOST_DEVICE float forward(float x) const { return x > 0.0f ? x : 0.0f; }
  RONDO_HOST_DEVICE float backward(float dy, float y) const { return y > 0.0f ? dy : 0.0f; }
};
struct Sigmoid {
  RONDO_HOST_DEVICE float forward(float x) const { return 1.0f / (1.0f + std::exp(-x)); }
  RONDO_HOST_DEVICE float backward(float dy, float y) const { return dy * y * (1.0f - y); }
};
struct Tanh {
  RONDO_HOST_DEVICE float forward(float x) const { return std::tanh(x); }
  RONDO_HOST_DEVICE float backward(float dy, float y) const { return dy * (1.0f - y * y); }
};

// Optimizer updates of one element, formulas of Keras 2.x (tf.keras 2.10). `lr` is the step's learning rate.
// A functor changes the weight w and its slots in place.

// v = momentum v - lr g; w += v; Nesterov: w += momentum v - lr g with the new v. Without momentum w -= lr g.
struct SgdUpdate {
  float momentum = 0.0f;
  bool nesterov = false;
  RONDO_HOST_DEVICE void operator()(float lr, float g, float& w) const { w -= lr * g; }
  RONDO_HOST_DEVICE void operator()(float lr, float g, float& w, float& v) const {
    v = momentum * v - lr * g;
    w += nesterov ? momentum * v - lr * g : v;
  }
};

// a = rho a + (1 - rho) g^2; w -= lr g / (sqrt(a) + epsilon).
struct RmsPropUpdate {
  float rho = 0.9f;
  float epsilon = 1e-7f;
  RONDO_HOST_DEVICE void operator()(float lr, float g, float& w, float& a) const {
    a = rho * a + (1.0f - rho) * g * g;
    w -= lr * g / (std::sqrt(a) + epsilon);
  }
};

// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr_t m / (sqrt(v) + epsilon), where the caller passes
// lr_t = lr sqrt(1 - b2^t) / (1 - b1^t): epsilon stands outside the bias correction, as in Keras.
struct AdamUpdate {
  float beta_1 = 0.9f;
  float beta_2 = 0.999f;
  float epsilon = 1e-7f;
  RONDO_HOST_DEVICE void operator()(float lr_t, float g, float& w, float& m, float& v) const {
    m = beta_1 * m + (1.0f - beta_1) * g;
    v = beta_2 * v + (1.0f - beta_2) * g * g;
    w -= lr_t * m / (std::sqrt(v) + epsilon);
  }
};

}  // namespace rondo
