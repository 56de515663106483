#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace rondo {

// A share of the host's cores. `threads` is how many threads each kernel uses (at least 1); pinning the
// process to its cores is the launcher's business.
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace rondo
