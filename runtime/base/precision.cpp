#include "runtime/base/precision.h"

#include "runtime/base/error.h"

namespace rondo {

Precision precision_by_name(std::string_view name) {
  for (const Precision precision : {Precision::kF32, Precision::kTF32, Precision::kBF16, Precision::kF16}) {
    if (precision_name(precision) == name) return precision;
  }
  raise<InvalidArgument>("unknown precision \"{}\"; choose one of f32, tf32, bf16, f16", name);
}

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kTF32:
      return "tf32";
    case Precision::kBF16:
      return "bf16";
    case Precision::kF16:
      return "f16";
  }
  return "?";
}

}  // namespace rondo
