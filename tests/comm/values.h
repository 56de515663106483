// Buffers and exact values for collectives of every type.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/half.h"

namespace rondo {

using half::bfloat16;
using half::float16;

inline constexpr DType kAllTypes[] = {DType::kU8,  DType::kI8,  DType::kU16,  DType::kI16, DType::kI32,
                                      DType::kI64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

inline bool is_floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

template <class Visit>
auto with_type(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kU8:
      return visit(uint8_t{});
    case DType::kI8:
      return visit(int8_t{});
    case DType::kU16:
      return visit(uint16_t{});
    case DType::kI16:
      return visit(int16_t{});
    case DType::kI32:
      return visit(int32_t{});
    case DType::kI64:
      return visit(int64_t{});
    case DType::kF16:
      return visit(float16(0.0f));
    case DType::kBF16:
      return visit(bfloat16(0.0f));
    case DType::kF32:
      return visit(float{});
    case DType::kF64:
      break;
  }
  return visit(double{});
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

// Elements between sentinels, starting one byte past alignment where asked for.
class Guarded {
 public:
  Guarded(DType dtype, int64_t count, bool misaligned = false)
      : dtype_(dtype),
        count_(count),
        offset_(kGuard + (misaligned ? 1 : 0)),
        storage_(static_cast<size_t>(count * dtype_size(dtype)) + 2 * kGuard + 1, kSentinel) {}

  Span span() { return {storage_.data() + offset_, count_, dtype_}; }

  void set(int64_t i, double value) {
    with_type(dtype_, [&](auto tag) {
      using T = decltype(tag);
      T element;
      if constexpr (kIsHalf<T>) {
        element = T(static_cast<float>(value));
      } else {
        element = static_cast<T>(value);
      }
      std::memcpy(at<T>(i), &element, sizeof(T));
    });
  }

  double get(int64_t i) {
    return with_type(dtype_, [&](auto tag) -> double {
      using T = decltype(tag);
      T element;
      std::memcpy(&element, at<T>(i), sizeof(T));
      if constexpr (kIsHalf<T>) {
        return static_cast<double>(static_cast<float>(element));
      } else {
        return static_cast<double>(element);
      }
    });
  }

  void expect_sentinels() const {
    const auto intact = [](std::byte b) { return b == kSentinel; };
    const auto end = static_cast<ptrdiff_t>(offset_) + count_ * dtype_size(dtype_);
    EXPECT_TRUE(std::all_of(storage_.begin(), storage_.begin() + static_cast<ptrdiff_t>(offset_), intact));
    EXPECT_TRUE(std::all_of(storage_.begin() + end, storage_.end(), intact));
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kSentinel{0xA5};

  template <class T>
  std::byte* at(int64_t i) {
    return storage_.data() + offset_ + i * static_cast<int64_t>(sizeof(T));
  }

  DType dtype_;
  int64_t count_;
  size_t offset_;
  std::vector<std::byte> storage_;
};

}  // namespace rondo
