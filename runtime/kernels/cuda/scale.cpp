#include "runtime/kernels/cuda/scale.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/scale_kernels.h"

namespace rondo {

void scale_span(Stream& stream, ConstSpan in, Span out, double factor) {
  cuda::scale(cuda::handle_of(stream), out.dtype, in.data, out.data, out.count, factor);
}

void convert_span(Stream& stream, ConstSpan in, Span out) {
  const bool narrows = in.dtype == DType::kI32, widens = out.dtype == DType::kI32;
  const DType other = narrows ? out.dtype : in.dtype;
  RONDO_CHECK(narrows != widens && (other == DType::kI16 || other == DType::kU16));
  cuda::convert(cuda::handle_of(stream), in.dtype, in.data, out.dtype, out.data, out.count);
}

}  // namespace rondo
