// How the entry points of the CUDA runtime get at the driver.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <utility>

#include "tests/sim/driver.h"
#include "tests/sim/graph.h"
#include "tests/sim/mistakes.h"

namespace rondo::sim {

// f(driver) under the lock, unless nothing works any more.
template <class F>
cudaError_t locked(F&& f) {
  if (const cudaError_t error = ready(); error != cudaSuccess) return result(error);
  const std::scoped_lock lock(driver().mutex);
  return result(f(driver()));
}

// f(stream) under the lock. A destroyed stream is a mistake: the real runtime crashes, or not.
template <class F>
cudaError_t with_stream(cudaStream_t handle, F&& f) {
  return locked([&](Driver& sim) {
    const std::shared_ptr<Stream> stream = sim.find(handle);
    if (stream == nullptr) {
      mistake("a call names a stream that does not exist, or was destroyed");
      return cudaErrorInvalidResourceHandle;
    }
    return f(*stream);
  });
}

// Calls that block, ask or allocate are not allowed to any thread while a stream captures in global mode, and
// to the capturing thread in its own mode; they spoil the capture. Needs the lock.
inline cudaError_t forbid_in_capture(Driver& sim) {
  bool forbidden = false;
  for (const auto& device : sim.devices) {
    for (const auto& stream : device.streams) {
      if (stream->capture == nullptr || !stream->capture->forbids()) continue;
      stream->capture->invalidate();
      forbidden = true;
    }
  }
  return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

// The calling thread's device; its context exists from here on. Needs the lock.
inline int use_device(Driver& sim) {
  if (current_device() < 0) set_current_device(0);
  sim.devices[static_cast<size_t>(current_device())].touched = true;
  return current_device();
}

}  // namespace rondo::sim
