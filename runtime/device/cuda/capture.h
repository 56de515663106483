// Stream capture and CUDA graphs.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "runtime/device/device.h"

namespace rondo::cuda {

// Set when the GPU has not finished its work in time. What it may still use is then left alone: to free it
// would wait for the GPU.
using Hung = std::shared_ptr<std::atomic<bool>>;

// Of a stream of this folder's device; `device_name` appears in messages. Other threads may go on calling
// CUDA: the capture forbids things to the calling thread only.
std::unique_ptr<Capture> begin_capture(Stream& stream, const std::string& device_name, const Hung& hung);

}  // namespace rondo::cuda
