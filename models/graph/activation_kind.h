#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rondo {

enum class Activation : uint8_t;

// The activations a layer can end with, by Keras' names. Softmax (over the last axis) is a kernel of its own;
// the others run inside the kernel before them.
enum class ActivationKind : uint8_t { kLinear, kRelu, kSigmoid, kTanh, kSoftmax };

// "linear" (also ""), "relu", "sigmoid", "tanh", "softmax". Throws InvalidArgument that lists the names;
// `where` says who asked.
ActivationKind activation_by_name(std::string_view name, std::string_view where);
std::string_view activation_name(ActivationKind kind);

// The element-wise function, absent for softmax.
std::optional<Activation> elementwise(ActivationKind kind);

}  // namespace rondo
