#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rondo {

enum class Activation : uint8_t;
struct ActivationFunction;

// The activations a layer can end with, by Keras' names. Softmax (over the last axis) is a kernel of its own;
// the others run inside the kernel before them.
enum class ActivationKind : uint8_t {
  kLinear,
  kRelu,
  kSigmoid,
  kTanh,
  kSoftmax,
  kElu,
  kSelu,
  kSoftplus,
  kSoftsign,
  kHardSigmoid,
  kExponential,
  kSwish,
  kGelu,
  kRelu6,
};

// "linear" (also ""), "relu", "sigmoid", "tanh", "softmax", "elu" (alpha 1), "selu", "softplus", "softsign",
// "hard_sigmoid", "exponential", "swish", "gelu" (exact), "relu6". Throws InvalidArgument that lists the
// names; `where` says who asked.
ActivationKind activation_by_name(std::string_view name, std::string_view where);
std::string_view activation_name(ActivationKind kind);

// The function that kernels with weights can fuse behind them, if it is one.
std::optional<Activation> fused_function(ActivationKind kind);
// The element-wise function, absent for softmax.
std::optional<ActivationFunction> elementwise(ActivationKind kind);

}  // namespace rondo
