// One GPU through the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/device.h"

namespace rondo::cuda {

struct DeviceFacts {
  std::string name;
  std::string uuid;     // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci_bus;  // "0000:3b:00.0"
  int64_t memory_bytes = 0;
  int numa_node = -1;
};

// Every GPU that the driver and CUDA_VISIBLE_DEVICES leave to this process; makes no context. Throws
// DeviceError where there is no driver, or one that is too old.
std::vector<DeviceFacts> list_devices();

// Makes the GPU at `index` of list_devices() current for the calling thread, and its context. Throws
// DeviceError.
std::unique_ptr<Device> make_cuda_device(int index);

// The CUDA handles behind the objects of such a device, whose GPU becomes current for the calling thread.
cudaStream_t handle_of(Stream& stream);
cudaEvent_t handle_of(const Event& event);
int index_of(const Device& device);
// Makes the device's GPU current for the calling thread.
void make_current(const Device& device);
// A stream whose work goes first where kernels compete for the GPU.
std::unique_ptr<Stream> make_urgent_stream(Device& device);

}  // namespace rondo::cuda
