#pragma once

#include <cstdint>
#include <string_view>

namespace rondo {

// Element types. Files and messages use the names of dtype_name: "float32", "int64", ...
enum class DType : uint8_t { kU8, kI8, kU16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

// Bytes of one element.
constexpr int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

std::string_view dtype_name(DType dtype);

// The DType of a C++ type: dtype_of<float> == DType::kF32.
template <class T>
inline constexpr DType dtype_of = T::kDType;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::kU8;
template <>
inline constexpr DType dtype_of<int8_t> = DType::kI8;
template <>
inline constexpr DType dtype_of<uint16_t> = DType::kU16;
template <>
inline constexpr DType dtype_of<int16_t> = DType::kI16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::kI32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::kI64;
template <>
inline constexpr DType dtype_of<float> = DType::kF32;
template <>
inline constexpr DType dtype_of<double> = DType::kF64;

}  // namespace rondo
