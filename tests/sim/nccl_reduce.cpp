#include <cmath>
#include <cstring>
#include <type_traits>

#include "runtime/comm/half.h"
#include "tests/sim/comm.h"

namespace rondo::sim {
namespace {

template <class T>
using Sum =
    std::conditional_t<std::is_same_v<T, half::float16> || std::is_same_v<T, half::bfloat16>, float, T>;

template <class T>
Sum<T> join(Sum<T> a, Sum<T> b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      return static_cast<Sum<T>>(a * b);
    case ncclMax:
      return b > a || b != b ? b : a;
    case ncclMin:
      return b < a || b != b ? b : a;
    default:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      return static_cast<Sum<T>>(a + b);
  }
}

template <class T>
void reduce_as(const std::vector<const std::byte*>& all, std::byte* result, size_t count, const Call& call) {
  for (size_t i = 0; i < count; ++i) {
    Sum<T> value{};
    for (size_t r = 0; r < all.size(); ++r) {
      T next;
      std::memcpy(&next, all[r] + i * sizeof(T), sizeof(T));
      value = r == 0 ? static_cast<Sum<T>>(next) : join<T>(value, static_cast<Sum<T>>(next), call.op);
    }
    if (call.op == ncclAvg) value = static_cast<Sum<T>>(value / static_cast<Sum<T>>(all.size()));
    const T rounded = static_cast<T>(value);
    std::memcpy(result + i * sizeof(T), &rounded, sizeof(T));
  }
}

// f(T{}) with the type's C++ counterpart.
template <class F>
void with_type(ncclDataType_t type, F&& f) {
  switch (type) {
    case ncclInt8:
      return f(int8_t{});
    case ncclUint8:
      return f(uint8_t{});
    case ncclInt32:
      return f(int32_t{});
    case ncclUint32:
      return f(uint32_t{});
    case ncclInt64:
      return f(int64_t{});
    case ncclUint64:
      return f(uint64_t{});
    case ncclFloat16:
      return f(half::float16{});
    case ncclFloat32:
      return f(float{});
    case ncclFloat64:
      return f(double{});
    case ncclBfloat16:
      return f(half::bfloat16{});
    default:
      return;
  }
}

}  // namespace

size_t size_of(ncclDataType_t type) {
  size_t bytes = 0;
  with_type(type, [&](auto value) { bytes = sizeof value; });
  return bytes;
}

void reduce(const std::vector<const std::byte*>& all, std::byte* result, size_t count, const Call& call) {
  with_type(call.type, [&](auto value) { reduce_as<decltype(value)>(all, result, count, call); });
}

void scale(const std::byte* from, std::byte* to, size_t count, ncclDataType_t type, double factor) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      value = static_cast<T>(static_cast<Sum<T>>(static_cast<Sum<T>>(value) * static_cast<Sum<T>>(factor)));
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  });
}

double as_double(const std::byte* value, ncclDataType_t type) {
  double result = 0.0;
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    T typed;
    std::memcpy(&typed, value, sizeof(T));
    result = static_cast<double>(static_cast<Sum<T>>(typed));
  });
  return result;
}

}  // namespace rondo::sim
