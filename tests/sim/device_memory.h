// Device memory as CUDA and NCCL hand it out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/sim/history.h"

namespace rondo::sim {

// Needs the driver's lock. `birth`: the operation behind which the memory exists; none: at once.
cudaError_t allocate_device(void** data, size_t bytes, const char* made_by, Touch birth, int device);
// Takes the lock; waits for the device.
cudaError_t free_device(void* data, const char* how);

}  // namespace rondo::sim
