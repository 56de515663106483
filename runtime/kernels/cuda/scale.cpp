#include "runtime/kernels/cuda/scale.h"

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/scale_kernels.h"

namespace rondo {

void scale_span(Stream& stream, ConstSpan in, Span out, double factor) {
  cuda::scale(cuda::handle_of(stream), out.dtype, in.data, out.data, out.count, factor);
}

}  // namespace rondo
