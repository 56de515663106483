// Included by one source file for each instruction set, with RONDO_REDUCE_VARIANT set to the namespace. The
// compiler's flags differ between those files, so nothing here has external linkage, and no inline function
// of a library is used: the linker could keep the wrong copy.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "runtime/comm/reduce_kernels.h"

namespace rondo::RONDO_REDUCE_VARIANT {
namespace {

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// The type in which T is accumulated.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Float16> {
  using type = float;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};
template <class T>
using Acc = typename Accumulator<T>::type;

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T>
T load(const std::byte* from, int64_t i) {
  T value;
  __builtin_memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, int64_t i, T value) {
  __builtin_memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// The same arithmetic as half.h, written without branches, so that the loops become vector code.
float widen(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  const auto subnormal = bits_as<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t special = 0x7f800000u | (magnitude << 13);
  uint32_t result = magnitude < 0x400u ? subnormal : normal;
  result = magnitude >= 0x7c00u ? special : result;
  return bits_as<float>(sign | result);
}
Float16 narrow(Float16, float value) {
  const auto whole = bits_as<uint32_t>(value);
  const uint32_t sign = (whole >> 16) & 0x8000u;
  const uint32_t magnitude = whole & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t small = magnitude < 0x38800000u ? magnitude : 0u;
  const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(small) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u : result;
  return {static_cast<uint16_t>(sign | result)};
}
float widen(BFloat16 value) {
  return bits_as<float>(static_cast<uint32_t>(value.bits) << 16);
}
BFloat16 narrow(BFloat16, float value) {
  const auto whole = bits_as<uint32_t>(value);
  const uint32_t rounded = (whole + 0x7fffu + ((whole >> 16) & 1u)) >> 16;
  const uint32_t quiet = (whole >> 16) | 0x40u;
  return {static_cast<uint16_t>((whole & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}
template <class T>
T widen(T value) {
  return value;
}
template <class T>
T narrow(T, T value) {
  return value;
}

// Unsigned arithmetic, whose overflow is defined to wrap.
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

template <class T>
T scaled(T value, double scale) {
  if constexpr (std::is_integral_v<T>) {
    // Both bounds are powers of two or exact in double, apart from the upper one of 64 bits, which rounds up
    // to 2^63: hence >=.
    const double product = static_cast<double>(value) * scale;
    constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::lowest());
    constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());
    if (product >= kHigh) return std::numeric_limits<T>::max();
    if (product <= kLow) return std::numeric_limits<T>::lowest();
    return product == product ? static_cast<T>(product) : T{0};
  } else {
    return static_cast<T>(value * static_cast<T>(scale));
  }
}

constexpr int64_t kBlock = 1024;  // elements: two blocks of accumulators stay in the first-level cache

template <class T>
void widen_block(const std::byte* x, Acc<T>* to, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + 2 * i));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
    }
  }
#endif
#pragma GCC ivdep
  for (; i < n; ++i) to[i] = widen(load<T>(x, i));
}

template <class T>
void narrow_block(const Acc<T>* from, std::byte* z, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(z + 2 * i), bits);
    }
  }
#endif
#pragma GCC ivdep
  for (; i < n; ++i) store(z, i, narrow(T{}, from[i]));
}

template <class A>
void scale_block(A* values, int64_t n, double scale) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) values[i] = scaled(values[i], scale);
}

template <class A>
void divide_block(A* values, int64_t n, int divisor) {
  const A d = static_cast<A>(divisor);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<A>(values[i] / d);
}

// The loops over elements of the native types. Iterations are independent, though arrays may be the same:
// without the pragmas the compiler tests for overlap at run time and takes the scalar loop in the usual case.
template <class T, class Op>
void two_to_one(const std::byte* x, const std::byte* y, std::byte* z, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) store(z, i, Op::apply(load<T>(x, i), load<T>(y, i)));
}
template <class T, class Op>
void two_to_two(const std::byte* x, const std::byte* y, std::byte* z, std::byte* w, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T value = Op::apply(load<T>(x, i), load<T>(y, i));
    store(z, i, value);
    store(w, i, value);
  }
}

template <class T, class Op>
void by_blocks(const ReduceJob& job) {
  alignas(64) Acc<T> sum[kBlock];
  alignas(64) Acc<T> next[kBlock];
  for (int64_t begin = 0; begin < job.count; begin += kBlock) {
    const int64_t n = job.count - begin < kBlock ? job.count - begin : kBlock;
    const int64_t offset = begin * static_cast<int64_t>(sizeof(T));
    for (int64_t r = 0; r < job.input_count; ++r) {
      const std::byte* x = static_cast<const std::byte*>(job.inputs[r]) + offset;
      if (std::is_same_v<T, Acc<T>> && r > 0 && job.prescale == 1) {
        auto* bytes = reinterpret_cast<std::byte*>(sum);
        two_to_one<Acc<T>, Op>(bytes, x, bytes, n);
        continue;
      }
      Acc<T>* to = r == 0 ? sum : next;
      widen_block<T>(x, to, n);
      if (job.prescale != 1) scale_block(to, n, job.prescale);
      if (r == 0) continue;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], next[i]);
    }
    if (job.divisor > 1) divide_block(sum, n, job.divisor);
    if (job.postscale != 1) scale_block(sum, n, job.postscale);
    if (job.output_count == 0) continue;
    auto* first = static_cast<std::byte*>(job.outputs[0]) + offset;
    narrow_block<T>(sum, first, n);
    for (int64_t k = 1; k < job.output_count; ++k) {
      __builtin_memcpy(static_cast<std::byte*>(job.outputs[k]) + offset, first,
                       static_cast<size_t>(n) * sizeof(T));
    }
  }
}

template <class T, class Op>
void run(const ReduceJob& job) {
  if constexpr (std::is_same_v<T, Acc<T>>) {
    const bool plain = job.prescale == 1 && job.postscale == 1 && job.divisor == 1;
    if (plain && job.input_count == 2 && (job.output_count == 1 || job.output_count == 2)) {
      const auto* x = static_cast<const std::byte*>(job.inputs[0]);
      const auto* y = static_cast<const std::byte*>(job.inputs[1]);
      auto* z = static_cast<std::byte*>(job.outputs[0]);
      if (job.output_count == 1) return two_to_one<T, Op>(x, y, z, job.count);
      return two_to_two<T, Op>(x, y, z, static_cast<std::byte*>(job.outputs[1]), job.count);
    }
  }
  by_blocks<T, Op>(job);
}

template <class T>
HalfKernels half_kernels() {
  return {[](const void* from, float* to, int64_t count) {
            widen_block<T>(static_cast<const std::byte*>(from), to, count);
          },
          [](const float* from, void* to, int64_t count) {
            narrow_block<T>(from, static_cast<std::byte*>(to), count);
          }};
}

template <class T>
ReduceKernel find_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return run<T, Add>;
    case ReduceOp::kMin:
      return run<T, Min>;
    case ReduceOp::kMax:
      return run<T, Max>;
    case ReduceOp::kProduct:
      return run<T, Multiply>;
  }
  return nullptr;
}

}  // namespace

ReduceKernel find(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kU8:
      return find_op<uint8_t>(op);
    case DType::kI8:
      return find_op<int8_t>(op);
    case DType::kU16:
      return find_op<uint16_t>(op);
    case DType::kI16:
      return find_op<int16_t>(op);
    case DType::kI32:
      return find_op<int32_t>(op);
    case DType::kI64:
      return find_op<int64_t>(op);
    case DType::kF16:
      return find_op<Float16>(op);
    case DType::kBF16:
      return find_op<BFloat16>(op);
    case DType::kF32:
      return find_op<float>(op);
    case DType::kF64:
      return find_op<double>(op);
  }
  return nullptr;
}

HalfKernels find_halves(DType dtype) {
  if (dtype == DType::kF16) return half_kernels<Float16>();
  if (dtype == DType::kBF16) return half_kernels<BFloat16>();
  return {};
}

}  // namespace rondo::RONDO_REDUCE_VARIANT
