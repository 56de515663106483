#include "tests/sim/numbers.h"

#include <cstring>

#include "runtime/comm/half.h"

namespace rondo::sim {
using half::bfloat16;
using half::float16;

size_t size_of(Format format) {
  return format == Format::kF32 ? 4 : 2;
}

void load(Format format, const void* from, float* to, size_t count) {
  if (format == Format::kF32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const auto* f16 = static_cast<const float16*>(from);
  const auto* bf16 = static_cast<const bfloat16*>(from);
  for (size_t i = 0; i < count; ++i) {
    to[i] = format == Format::kF16 ? static_cast<float>(f16[i]) : static_cast<float>(bf16[i]);
  }
}

void store(Format format, const float* from, void* to, size_t count) {
  if (format == Format::kF32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    if (format == Format::kF16) {
      static_cast<float16*>(to)[i] = float16(from[i]);
    } else {
      static_cast<bfloat16*>(to)[i] = bfloat16(from[i]);
    }
  }
}

float load_one(Format format, const void* from, size_t at) {
  float value = 0.0f;
  load(format, static_cast<const std::byte*>(from) + at * size_of(format), &value, 1);
  return value;
}

}  // namespace rondo::sim
