// The backend that the kernel tests of this program run on: host_backend.cpp or gpu_backend.cpp is linked.
#pragma once

#include <memory>

#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"

namespace rondo::test {

struct BackendUnderTest {
  std::unique_ptr<Device> device;
  std::unique_ptr<KernelBackend> backend;
};

// `threads` counts on hosts.
BackendUnderTest make_backend_under_test(int threads);

}  // namespace rondo::test
