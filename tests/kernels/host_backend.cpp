#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/kernels/backend_under_test.h"

namespace rondo::test {

BackendUnderTest make_backend_under_test(int threads) {
  BackendUnderTest made;
  made.device = make_cpu_device(threads);
  made.backend = make_cpu_backend(*made.device);
  return made;
}

}  // namespace rondo::test
