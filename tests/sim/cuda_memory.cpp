#include <cuda_runtime_api.h>

#include <cstring>

#include "tests/sim/api.h"
#include "tests/sim/device_memory.h"

using namespace rondo::sim;

namespace rondo::sim {
size_t live_events();
size_t live_comms();

cudaError_t allocate_device(void** data, size_t bytes, const char* made_by, Touch birth, int device) {
  Driver& sim = driver();
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (sim.out_of_memory_now()) return cudaErrorMemoryAllocation;
  const Allocation* made = sim.memory.allocate(device, bytes, made_by, birth);
  if (made == nullptr) return cudaErrorMemoryAllocation;
  *data = reinterpret_cast<void*>(made->base);
  return cudaSuccess;
}

// As cudaFree does, waits for the device first.
cudaError_t free_device(void* data, const char* how) {
  if (data == nullptr) return cudaSuccess;
  int device = kHost;
  const cudaError_t error = locked([&](Driver& sim) {
    const Allocation* found = sim.memory.find(data);
    if (found == nullptr || found->device == kHost || found->base != reinterpret_cast<uintptr_t>(data)) {
      mistake(std::string(how) + " of memory that is no device allocation, or was freed before");
      return cudaErrorInvalidValue;
    }
    device = found->device;
    return forbid_in_capture(sim);
  });
  if (error != cudaSuccess) return error;
  driver().drain(device);
  return locked([&](Driver& sim) {
    sim.memory.release(*sim.memory.find(data), how);
    return cudaSuccess;
  });
}

Counters counters() {
  const std::scoped_lock lock(driver().mutex);
  return driver().counters;
}

void seed_delays(uint64_t seed) {
  const std::scoped_lock lock(driver().mutex);
  driver().seed = seed;
}

void fail_allocation(int64_t n) {
  const std::scoped_lock lock(driver().mutex);
  driver().failing_allocation = driver().allocations + n;
}

std::vector<int> touched_devices() {
  const std::scoped_lock lock(driver().mutex);
  std::vector<int> devices;
  for (size_t i = 0; i < driver().devices.size(); ++i) {
    if (driver().devices[i].touched) devices.push_back(static_cast<int>(i));
  }
  return devices;
}

std::string leftovers() {
  const std::scoped_lock lock(driver().mutex);
  std::string text;
  size_t bytes = 0, count = 0;
  for (const auto& [base, allocation] : driver().memory.allocations()) {
    if (!allocation.live()) continue;
    ++count;
    bytes += allocation.bytes;
  }
  if (count > 0) text += std::to_string(count) + " allocations of " + std::to_string(bytes) + " bytes; ";
  if (!driver().streams.empty()) text += std::to_string(driver().streams.size()) + " streams; ";
  if (live_comms() > 0) text += std::to_string(live_comms()) + " NCCL communicators; ";
  if (live_events() > 0) text += std::to_string(live_events()) + " events; ";
  return text;
}

}  // namespace rondo::sim

extern "C" {

void rondo_sim_seed_delays(uint64_t seed) {
  seed_delays(seed);
}
void rondo_sim_fail_allocation(int64_t n) {
  fail_allocation(n);
}
void rondo_sim_counters(Counters* to) {
  *to = counters();
}
const char* rondo_sim_leftovers() {
  thread_local std::string text;
  text = leftovers();
  return text.c_str();
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return locked([&](Driver& sim) {
    if (const cudaError_t error = forbid_in_capture(sim); error != cudaSuccess) return error;
    return allocate_device(data, bytes, "cudaMalloc", {}, use_device(sim));
  });
}

cudaError_t cudaFree(void* data) {
  if (data == nullptr) {
    return locked([](Driver& sim) {
      use_device(sim);  // the usual way to make a context
      return cudaSuccess;
    });
  }
  return free_device(data, "cudaFree");
}

cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t handle) {
  return with_stream(handle, [&](Stream& stream) {
    if (stream.capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    // Only work behind this point of the stream may use it.
    const Mark mark = driver().queue(stream, {.name = "cudaMallocAsync"});
    const Touch birth{{stream.options().index, mark.point.tick}, "cudaMallocAsync"};
    return allocate_device(data, bytes, "cudaMallocAsync", birth, stream.device());
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t handle) {
  if (data == nullptr) return cudaSuccess;
  return with_stream(handle, [&](Stream& stream) {
    if (stream.capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    Driver& sim = driver();
    Allocation* found = sim.memory.find(data);
    if (found == nullptr || found->device == kHost || found->base != reinterpret_cast<uintptr_t>(data)) {
      mistake("cudaFreeAsync of memory that is no device allocation, or was freed before");
      return cudaErrorInvalidValue;
    }
    // The accesses before it must be ordered as if it wrote; the bytes go when the stream gets there.
    Operation operation{.name = "cudaFreeAsync", .accesses = {{data, found->bytes, true}}, .body = [data] {
                          const std::scoped_lock lock(driver().mutex);
                          Allocation* dead = driver().memory.at_or_below(data);
                          driver().memory.release(*dead, "cudaFreeAsync");
                        }};
    sim.queue(stream, std::move(operation));
    found->freed_by = "cudaFreeAsync";
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return locked([&](Driver& sim) {
    use_device(sim);
    if (const cudaError_t error = forbid_in_capture(sim); error != cudaSuccess) return error;
    const Allocation* made = sim.memory.pin(bytes);
    *data = made == nullptr ? nullptr : reinterpret_cast<void*>(made->base);
    return made == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return cudaHostAlloc(data, bytes, 0);
}

cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  return locked([&](Driver& sim) {
    Allocation* found = sim.memory.find(data);
    if (found == nullptr || found->device != kHost || found->base != reinterpret_cast<uintptr_t>(data)) {
      mistake("cudaFreeHost of memory that cudaHostAlloc did not give, or that was freed before");
      return cudaErrorInvalidValue;
    }
    Clock known = sim.host_clock(use_device(sim));
    for (const Device& device : sim.devices) known.join(device.host);
    if (!found->history.covered_by(known)) {
      mistake("cudaFreeHost of pinned memory that queued work uses: nothing has waited for it");
      return cudaSuccess;  // where mistakes are recorded the work still needs it
    }
    const auto* first = reinterpret_cast<std::byte*>(found->base);
    std::erase_if(sim.pending, [&](const PendingCopy& copy) {
      return copy.host >= first && copy.host < first + found->bytes;
    });
    sim.memory.release(*found, "cudaFreeHost");
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return locked([&](Driver& sim) {
    use_device(sim);
    if (sim.memory.find(data) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
    sim.memory.register_pinned(data, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* data) {
  return locked([&](Driver& sim) {
    Allocation* found = sim.memory.find(data);
    if (found == nullptr || found->device != kHost) return cudaErrorHostMemoryNotRegistered;
    sim.memory.release(*found, "cudaHostUnregister");
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return locked([&](Driver& sim) {
    *total = sim.memory.total();
    *free = *total - sim.memory.used(use_device(sim));
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return locked([&](Driver& sim) {
    *attributes = {};
    const Allocation* found = sim.memory.find(data);
    if (found == nullptr && sim.memory.device_of(data) != kHost) {
      mistake("cudaPointerGetAttributes of memory of " + sim.memory.where(data) + " that is not allocated");
    }
    attributes->type = found == nullptr         ? cudaMemoryTypeUnregistered
                       : found->device == kHost ? cudaMemoryTypeHost
                                                : cudaMemoryTypeDevice;
    attributes->device =
        found == nullptr || found->device == kHost ? std::max(current_device(), 0) : found->device;
    attributes->devicePointer = found == nullptr ? nullptr : const_cast<void*>(data);
    attributes->hostPointer = found == nullptr || found->device == kHost ? const_cast<void*>(data) : nullptr;
    return cudaSuccess;
  });
}

}  // extern "C"
