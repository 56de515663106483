#include <cuda_runtime_api.h>

#include <cstring>

#include "tests/sim/api.h"

using namespace rondo::sim;

namespace {

enum class Place { kDevice, kPinned, kPageable };

Place place_of(const void* data) {
  Memory& memory = driver().memory;
  if (memory.device_of(data) != kHost) return Place::kDevice;
  return memory.find(data) != nullptr ? Place::kPinned : Place::kPageable;
}

bool fits(cudaMemcpyKind kind, Place to, Place from) {
  const bool to_device = to == Place::kDevice;
  const bool from_device = from == Place::kDevice;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    default:
      return true;
  }
}

using Bytes = std::vector<std::byte>;

std::shared_ptr<Bytes> snapshot(const void* from, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  return std::make_shared<Bytes>(first, first + bytes);
}

Operation device_copy(void* to, const void* from, size_t bytes) {
  return {.name = "copy on the device",
          .accesses = {{from, bytes, false}, {to, bytes, true}},
          .body = [=] { std::memcpy(to, from, bytes); },
          .peers = true};
}

// What the host writes into the source before it has waited is a mistake, found when it waits: whether the
// stream was fast does not matter.
Operation upload(void* to, const void* from, size_t bytes) {
  Driver& sim = driver();
  auto* host = static_cast<std::byte*>(const_cast<void*>(from));
  bool from_result = false;
  for (const PendingCopy& copy : sim.pending) {
    from_result |= copy.to_host && host < copy.host + copy.bytes && copy.host < host + bytes;
  }
  sim.before_host_copy(host, bytes, false);
  Operation made{.name = "upload", .accesses = {{from, bytes, false}, {to, bytes, true}}, .peers = true};
  if (from_result) {
    made.body = [=] { std::memcpy(to, from, bytes); };
    return made;
  }
  const auto kept = snapshot(from, bytes);
  made.body = [=] { std::memcpy(to, kept->data(), bytes); };
  made.queued = [=](const Mark& mark) {
    driver().pending.push_back({host,
                                bytes,
                                {mark.point.stream->options().index, mark.point.tick},
                                false,
                                kept,
                                nullptr,
                                nullptr,
                                "upload"});
  };
  return made;
}

// Until the host has waited for it, the destination holds nonsense.
Operation download(void* to, const void* from, size_t bytes) {
  auto* host = static_cast<std::byte*>(to);
  driver().before_host_copy(host, bytes, true);
  auto kept = std::make_shared<Bytes>(bytes);
  auto direct = std::make_shared<bool>(false);
  auto done = std::make_shared<bool>(false);
  std::memset(to, 0xFF, bytes);
  return {.name = "download",
          .accesses = {{from, bytes, false}, {to, bytes, true}},
          .body =
              [=] {
                std::memcpy(kept->data(), from, bytes);
                const std::scoped_lock lock(driver().mutex);
                *done = true;
                if (*direct) std::memcpy(to, kept->data(), bytes);
              },
          .peers = true,
          .queued =
              [=](const Mark& mark) {
                driver().pending.push_back({host,
                                            bytes,
                                            {mark.point.stream->options().index, mark.point.tick},
                                            true,
                                            kept,
                                            direct,
                                            done,
                                            "download"});
              }};
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle,
                 bool blocking) {
  if (bytes == 0) return result(ready());
  Mark wait_for;
  int device = 0;
  bool wait = blocking;
  const cudaError_t error = with_stream(handle, [&](Stream& stream) -> cudaError_t {
    Driver& sim = driver();
    const Place target = place_of(to);
    const Place source = place_of(from);
    if (!fits(kind, target, source)) {
      mistake("a copy's kind does not fit its pointers: from " + sim.memory.where(from) + " to " +
              sim.memory.where(to));
      return cudaErrorInvalidValue;
    }
    device = stream.device();
    ++sim.counters.copies;
    if (blocking && stream.capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (target == Place::kPageable || source == Place::kPageable) {
      ++sim.counters.pageable_copies;
      if (stream.capture != nullptr) {
        stream.capture->invalidate();
        return cudaErrorStreamCaptureUnsupported;
      }
    }
    if (target == Place::kDevice && source == Place::kDevice) {
      wait = false;
      return sim.submit(
          stream, [=] { return device_copy(to, from, bytes); }, &wait_for);
    }
    if (target == Place::kDevice && source == Place::kPinned) {
      return sim.submit(
          stream, [=] { return upload(to, from, bytes); }, &wait_for);
    }
    if (target == Place::kDevice) {  // staged during the call
      return sim.submit(stream, [=, kept = snapshot(from, bytes)] {
        return Operation{.name = "upload from pageable memory",
                         .accesses = {{to, bytes, true}},
                         .body = [=] { std::memcpy(to, kept->data(), bytes); },
                         .peers = true};
      });
    }
    if (source == Place::kDevice && target == Place::kPinned) {
      return sim.submit(
          stream, [=] { return download(to, from, bytes); }, &wait_for);
    }
    wait = true;  // to pageable memory, or from host to host: the call returns when it is done
    std::vector<Access> accesses;
    if (source != Place::kPageable) accesses.push_back({from, bytes, false});
    if (target != Place::kPageable) accesses.push_back({to, bytes, true});
    for (const void* each : {static_cast<const void*>(to), from}) {
      sim.before_host_copy(static_cast<std::byte*>(const_cast<void*>(each)), bytes, each == to);
    }
    return sim.submit(
        stream,
        [=] {
          return Operation{.name = "download to pageable memory",
                           .accesses = accesses,
                           .body = [=] { std::memmove(to, from, bytes); },
                           .peers = true};
        },
        &wait_for);
  });
  if (error != cudaSuccess || !wait) return error;
  host_wait(device, wait_for);
  return result(driver().sticky);
}

cudaError_t set(void* to, int value, size_t bytes, cudaStream_t handle) {
  if (bytes == 0) return result(ready());
  return with_stream(handle, [&](Stream& stream) -> cudaError_t {
    if (place_of(to) == Place::kPageable) {
      mistake("a memset of host memory that is not pinned");
      return cudaErrorInvalidValue;
    }
    return driver().submit(stream, [=] {
      return Operation{
          .name = "memset", .accesses = {{to, bytes, true}}, .body = [=] { std::memset(to, value, bytes); }};
    });
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, false);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, true);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream, false);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return set(to, value, bytes, stream);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return set(to, value, bytes, nullptr);
}

}  // extern "C"
