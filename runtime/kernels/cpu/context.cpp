#include "runtime/kernels/cpu/context.h"

#include <omp.h>

namespace rondo::cpu {

void Context::use_threads() const {
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

}  // namespace rondo::cpu
