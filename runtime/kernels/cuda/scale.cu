#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/scale_kernels.h"

namespace rondo::cuda {
namespace {

struct Half {
  using Storage = __half;
  RONDO_DEVICE static __half times(__half x, double factor) {
    return __float2half(static_cast<float>(static_cast<double>(__half2float(x)) * factor));
  }
};
struct Brain {
  using Storage = __nv_bfloat16;
  RONDO_DEVICE static __nv_bfloat16 times(__nv_bfloat16 x, double factor) {
    return __float2bfloat16(static_cast<float>(static_cast<double>(__bfloat162float(x)) * factor));
  }
};
template <class T>
struct Floating {
  using Storage = T;
  RONDO_DEVICE static T times(T x, double factor) { return x * static_cast<T>(factor); }
};
template <class T, T kLowest, T kHighest>
struct Integer {
  using Storage = T;
  RONDO_DEVICE static T times(T x, double factor) {
    const double value = static_cast<double>(x) * factor;
    if (!(value > static_cast<double>(kLowest))) return kLowest;  // NaN too
    return value >= static_cast<double>(kHighest) ? kHighest : static_cast<T>(value);
  }
};
template <class T>
using IntegerOf = Integer<T, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()>;

template <class Type>
struct Scale {
  const typename Type::Storage* in;
  typename Type::Storage* out;
  double factor;
  RONDO_DEVICE void operator()(int64_t i) const { out[i] = Type::times(in[i], factor); }
};

template <class Type>
void run(cudaStream_t stream, const void* in, void* out, int64_t count, double factor) {
  using T = typename Type::Storage;
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  launch_elements("scale", stream, count, {reads(in, bytes), writes(out, bytes)},
                  Scale<Type>{static_cast<const T*>(in), static_cast<T*>(out), factor});
}

template <class From, class To>
struct Convert {
  const From* in;
  To* out;
  RONDO_DEVICE void operator()(int64_t i) const { out[i] = static_cast<To>(in[i]); }
};

template <class From, class To>
void run_convert(cudaStream_t stream, const void* in, void* out, int64_t count) {
  launch_elements("convert", stream, count,
                  {reads(in, count * static_cast<int64_t>(sizeof(From))),
                   writes(out, count * static_cast<int64_t>(sizeof(To)))},
                  Convert<From, To>{static_cast<const From*>(in), static_cast<To*>(out)});
}

}  // namespace

void convert(cudaStream_t stream, DType from, const void* in, DType to, void* out, int64_t count) {
  if (from == DType::kI16) return run_convert<int16_t, int32_t>(stream, in, out, count);
  if (from == DType::kU16) return run_convert<uint16_t, int32_t>(stream, in, out, count);
  if (to == DType::kI16) return run_convert<int32_t, int16_t>(stream, in, out, count);
  run_convert<int32_t, uint16_t>(stream, in, out, count);
}

void scale(cudaStream_t stream, DType dtype, const void* in, void* out, int64_t count, double factor) {
  switch (dtype) {
    case DType::kU8:
      return run<IntegerOf<uint8_t>>(stream, in, out, count, factor);
    case DType::kI8:
      return run<IntegerOf<int8_t>>(stream, in, out, count, factor);
    case DType::kU16:
      return run<IntegerOf<uint16_t>>(stream, in, out, count, factor);
    case DType::kI16:
      return run<IntegerOf<int16_t>>(stream, in, out, count, factor);
    case DType::kI32:
      return run<IntegerOf<int32_t>>(stream, in, out, count, factor);
    case DType::kI64:
      return run<IntegerOf<int64_t>>(stream, in, out, count, factor);
    case DType::kF16:
      return run<Half>(stream, in, out, count, factor);
    case DType::kBF16:
      return run<Brain>(stream, in, out, count, factor);
    case DType::kF32:
      return run<Floating<float>>(stream, in, out, count, factor);
    case DType::kF64:
      return run<Floating<double>>(stream, in, out, count, factor);
  }
}

}  // namespace rondo::cuda
