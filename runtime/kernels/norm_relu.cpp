#include "runtime/base/error.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/batch_norm.h"

namespace rondo {

std::unique_ptr<NormReluKernel> KernelBackend::norm_relu(const NormReluSpec&) {
  raise<Unavailable>("the backend {} normalizes and applies ReLU one after the other", name());
}

}  // namespace rondo
