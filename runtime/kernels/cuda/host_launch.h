// The launch of a kernel where the CUDA sources are compiled as host C++: the body runs later, on a simulated
// stream.
//
// Defined by the test double of the CUDA runtime, never by the product; nvcc does not see this header.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <span>

namespace rondo {

// Memory of a device, or pinned host memory, that a launch touches. An empty span (bytes == 0) counts for
// nothing, wherever it points.
struct DeviceSpan {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// Queues `body` on the stream of the current device, as a kernel launch would. `reads` and `writes` must name
// every span the body touches (memory that is read and written stands in both): the double checks that each
// lies in live memory of the stream's device and that every access is ordered. They are needed during the
// call only; `body` is copied, may run on another thread, and runs again with each replay of a graph that
// captured it. `name` appears in the double's messages and must outlive the program (a literal). Errors are
// reported as those of a launch are: by cudaGetLastError.
void rondo_host_launch(cudaStream_t stream, std::span<const DeviceSpan> reads,
                       std::span<const DeviceSpan> writes, std::function<void()> body,
                       const char* name = "kernel");

}  // namespace rondo
