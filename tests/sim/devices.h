// Which devices there are, and what they are called.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace rondo::sim {

std::string host_name();
// Of a device of this host, unique among all hosts.
cudaUUID_t physical_uuid(int device);
// What CUDA_VISIBLE_DEVICES leaves, and which device of the host the n-th of them is.
int visible_count();
int physical_device(int device);

}  // namespace rondo::sim
