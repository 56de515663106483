#include "runtime/base/error.h"
#include "runtime/launch/gpu_loader.h"
#include "tests/kernels/backend_under_test.h"

namespace rondo::test {

// A simulated GPU where RONDO_SIMULATED_GPUS is set, else a real one.
BackendUnderTest make_backend_under_test(int) {
  static const FoundGpus found = find_gpus();
  if (found.module == nullptr) throw Unavailable("no GPU to test: " + found.reason);
  BackendUnderTest made;
  made.device = found.module->make_device(0);
  made.backend = found.module->make_backend(*made.device);
  return made;
}

}  // namespace rondo::test
