#pragma once

#include <memory>

#include "runtime/kernels/backend.h"

namespace rondo::test {

class GuardedDevice;

// The host's kernels, run on a guarded device's streams and memory. The device must outlive the backend.
std::unique_ptr<KernelBackend> make_guarded_backend(GuardedDevice& device);

}  // namespace rondo::test
