#include "runtime/comm/reduce.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/comm/half.h"

namespace rondo {
namespace {

using half::bfloat16;
using half::float16;

// The type in which T is accumulated. Integers use an unsigned type, whose overflow is defined to wrap.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<float16> {
  using type = float;
};
template <>
struct Accumulator<bfloat16> {
  using type = float;
};

template <class T>
auto load(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return static_cast<typename Accumulator<T>::type>(value);
}

template <class T>
void store(std::byte* to, int64_t i, typename Accumulator<T>::type result) {
  const T value = static_cast<T>(result);
  std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <class T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

struct Add {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Multiply {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};

template <class T, class Op>
void combine_as(const void* a, const void* b, void* out, int64_t count, int divisor) {
  using Acc = typename Accumulator<T>::type;
  const auto* x = static_cast<const std::byte*>(a);
  const auto* y = static_cast<const std::byte*>(b);
  auto* z = static_cast<std::byte*>(out);
  // `out` is at most the same array as an operand, so iterations are independent; without the pragmas the
  // compiler tests for overlap at run time and takes the scalar loop just in the usual case.
  if (divisor > 1) {
    const Acc d = static_cast<Acc>(divisor);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      store<T>(z, i, static_cast<Acc>(Op::apply(load<T>(x, i), load<T>(y, i)) / d));
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) store<T>(z, i, Op::apply(load<T>(x, i), load<T>(y, i)));
}

template <class T, class Op>
void reduce_as(std::span<const void* const> inputs, void* out, int64_t count, bool average) {
  using Acc = typename Accumulator<T>::type;
  constexpr int64_t kBlock = 512;  // accumulators stay in the first-level cache
  std::array<Acc, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (size_t r = 0; r < inputs.size(); ++r) {
      const auto* x = static_cast<const std::byte*>(inputs[r]) + begin * static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < n; ++i) {
        const Acc value = load<T>(x, i);
        sum[static_cast<size_t>(i)] = r == 0 ? value : Op::apply(sum[static_cast<size_t>(i)], value);
      }
    }
    auto* z = static_cast<std::byte*>(out) + begin * static_cast<int64_t>(sizeof(T));
    const Acc divisor = static_cast<Acc>(inputs.size());
    for (int64_t i = 0; i < n; ++i) {
      const Acc value = sum[static_cast<size_t>(i)];
      store<T>(z, i, average ? static_cast<Acc>(value / divisor) : value);
    }
  }
}

// Calls visit(type tag, operation) for the pair.
template <class T, class Visit>
void for_op(ReduceOp op, const Visit& visit) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return visit(std::type_identity<T>{}, Add{});
    case ReduceOp::kMin:
      return visit(std::type_identity<T>{}, Min{});
    case ReduceOp::kMax:
      return visit(std::type_identity<T>{}, Max{});
    case ReduceOp::kProduct:
      return visit(std::type_identity<T>{}, Multiply{});
  }
}

template <class Visit>
void for_type(DType dtype, ReduceOp op, const Visit& visit) {
  switch (dtype) {
    case DType::kU8:
      return for_op<uint8_t>(op, visit);
    case DType::kI8:
      return for_op<int8_t>(op, visit);
    case DType::kU16:
      return for_op<uint16_t>(op, visit);
    case DType::kI16:
      return for_op<int16_t>(op, visit);
    case DType::kI32:
      return for_op<int32_t>(op, visit);
    case DType::kI64:
      return for_op<int64_t>(op, visit);
    case DType::kF16:
      return for_op<float16>(op, visit);
    case DType::kBF16:
      return for_op<bfloat16>(op, visit);
    case DType::kF32:
      return for_op<float>(op, visit);
    case DType::kF64:
      return for_op<double>(op, visit);
  }
}

}  // namespace

void reduce_all(DType dtype, ReduceOp op, std::span<const void* const> inputs, void* out, int64_t count) {
  RONDO_CHECK(!inputs.empty());
  for_type(dtype, op, [&](auto type, auto functor) {
    reduce_as<typename decltype(type)::type, decltype(functor)>(inputs, out, count, op == ReduceOp::kAverage);
  });
}

void combine(DType dtype, ReduceOp op, const void* a, const void* b, void* out, int64_t count, int divisor) {
  for_type(dtype, op, [&](auto type, auto functor) {
    combine_as<typename decltype(type)::type, decltype(functor)>(a, b, out, count, divisor);
  });
}

}  // namespace rondo
