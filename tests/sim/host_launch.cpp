#include "runtime/kernels/cuda/host_launch.h"

#include <utility>

#include "tests/sim/api.h"

namespace rondo {

void rondo_host_launch(cudaStream_t handle, std::span<const DeviceSpan> reads,
                       std::span<const DeviceSpan> writes, std::function<void()> body, const char* name) {
  std::vector<sim::Access> accesses;
  for (const DeviceSpan& span : reads) accesses.push_back({span.data, span.bytes, false});
  for (const DeviceSpan& span : writes) accesses.push_back({span.data, span.bytes, true});
  sim::with_stream(handle, [&](sim::Stream& stream) {
    if (stream.device() != std::max(sim::current_device(), 0)) return cudaErrorInvalidResourceHandle;
    return sim::driver().submit(stream, [accesses = std::move(accesses), body = std::move(body), name] {
      return sim::Operation{.name = name, .accesses = accesses, .body = body, .kernel = true};
    });
  });
}

}  // namespace rondo
