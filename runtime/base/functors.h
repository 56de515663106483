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

}  // namespace rondo
