// Every operation's accesses, checked when it is queued: the verdict depends on the order of calls only,
// never on what the stream threads happened to do.
#include <fmt/core.h>

#include "tests/sim/driver.h"
#include "tests/sim/mistakes.h"

namespace rondo::sim {
namespace {

std::string hex(const void* address, size_t bytes) {
  return fmt::format("[{}, +{})", address, bytes);
}

}  // namespace

void Driver::complain(const Stream& stream, const Operation& operation, const Access& access,
                      const std::string& why) {
  mistake(fmt::format("{} on {} {} {} of {}: {}", operation.name, stream.name(),
                      access.write ? "writes" : "reads", hex(access.data, access.bytes),
                      memory.where(access.data), why));
}

std::vector<uintptr_t> Driver::check(const Stream& stream, const Operation& operation, Stamp stamp,
                                     const Clock& before) {
  std::vector<uintptr_t> opens;
  for (const bool write : {false, true}) {
    for (const Access& access : operation.accesses) {
      if (access.write != write || access.bytes == 0) continue;
      Allocation* const found = memory.at_or_below(access.data);
      const auto address = reinterpret_cast<uintptr_t>(access.data);
      if (found == nullptr ||
          (found->device == kHost ? kHost : found->device) != memory.device_of(access.data) ||
          address >= found->base + found->bytes) {
        complain(stream, operation, access,
                 memory.device_of(access.data) == kHost
                     ? "this is ordinary host memory, which a device cannot reach"
                     : "no allocation lies there");
        continue;
      }
      const std::string which =
          fmt::format("allocation {} ({}, {} bytes at {})", found->number, found->made_by, found->bytes,
                      reinterpret_cast<void*>(found->base));
      if (!found->live()) {
        complain(stream, operation, access, fmt::format("use of {} after {}", which, found->freed_by));
        continue;
      }
      const size_t first = address - found->base;
      if (access.bytes > found->bytes - first) {
        complain(stream, operation, access,
                 fmt::format("{} bytes past the end of {}", access.bytes - (found->bytes - first), which));
        continue;
      }
      if (found->device != kHost && found->device != stream.device() && !operation.peers) {
        complain(stream, operation, access, fmt::format("{} belongs to another device", which));
        continue;
      }
      if (found->device != kHost) opens.push_back(found->base);
      const Touch touch{stamp, operation.name};
      const History::Clash clash = write ? found->history.write(first, first + access.bytes, touch, before)
                                         : found->history.read(first, first + access.bytes, touch, before);
      if (clash.conflict == Conflict::kNone) continue;
      std::string other = "an ended stream";
      for (const Device& device : devices) {
        for (const auto& each : device.streams) {
          if (each->options().index == clash.other.stamp.stream) other = each->name();
        }
        if (device.default_stream != nullptr &&
            device.default_stream->options().index == clash.other.stamp.stream) {
          other = device.default_stream->name();
        }
      }
      complain(stream, operation, access,
               fmt::format("nothing orders it behind {} on {}, which {} bytes {} to {} of {}: an event or a "
                           "synchronization is missing",
                           clash.other.operation, other,
                           clash.conflict == Conflict::kWriteAfterRead ? "reads" : "writes", clash.first,
                           clash.last, which));
    }
  }
  return opens;
}

}  // namespace rondo::sim
