#include "runtime/base/error.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

std::unique_ptr<RoundKernel> KernelBackend::round(DType to) {
  raise<Unavailable>("the backend {} computes in float32, not in {}", name(), dtype_name(to));
}

}  // namespace rondo
