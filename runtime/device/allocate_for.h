#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace rondo {

// "1.50 GiB", "300.0 MiB", "12 bytes"
inline std::string memory_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.1f} MiB", value / 0x1p20);
  return fmt::format("{} bytes", bytes);
}

// Zeroed device memory. Throws OutOfMemory that says what the memory was for and how much there is:
//   out of memory on NVIDIA H200: 12.30 GiB were wanted for 1024 rows of input; 8.10 GiB of 139.80 GiB are
//   left. <advice>
inline Buffer allocate_for(Device& device, int64_t bytes, std::string_view what,
                           std::string_view advice = "Use a smaller batch or model, or more ranks") {
  try {
    return device.allocate(bytes);
  } catch (const OutOfMemory&) {
    const DeviceMemory memory = device.memory();
    const std::string left =
        memory.total > 0
            ? fmt::format("; {} of {} are left", memory_text(memory.available), memory_text(memory.total))
            : std::string();
    raise<OutOfMemory>("out of memory on {}: {} were wanted for {}{}{}{}", device.name(), memory_text(bytes),
                       what, left, advice.empty() ? "" : ". ", advice);
  }
}

}  // namespace rondo
