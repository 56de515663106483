#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/dtype.h"

namespace rondo {

// How precisely a model computes. Weights, their gradients and the optimizer's state are float32 in any case,
// and so are losses, softmax, statistics of batches, and what a model gives to its user.
enum class Precision : uint8_t {
  kF32,
  kTF32,  // as kF32, but products on GPUs may round their inputs to 10 bits of fraction
  kBF16,  // layers compute in bfloat16: Keras' policy "mixed_bfloat16"
  kF16,   // layers compute in float16, under a loss scale that adapts: Keras' policy "mixed_float16"
};

// "f32", "tf32", "bf16", "f16". Throws InvalidArgument that lists them.
Precision precision_by_name(std::string_view name);
std::string_view precision_name(Precision precision);

// The type in which layers compute.
constexpr DType compute_dtype(Precision precision) {
  if (precision == Precision::kBF16) return DType::kBF16;
  return precision == Precision::kF16 ? DType::kF16 : DType::kF32;
}

}  // namespace rondo
