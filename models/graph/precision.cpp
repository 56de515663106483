#include "models/graph/precision.h"

#include "runtime/base/error.h"
#include "runtime/kernels/backend.h"

namespace rondo {

void check_precision(const KernelBackend& backend, Precision precision) {
  if (backend.computes_in(compute_dtype(precision))) return;
  raise<Unavailable>(
      "precision {}: the host computes in f32; choose f32, or train on a GPU (--device cuda), which computes "
      "in bf16 and f16 as well",
      precision_name(precision));
}

}  // namespace rondo
