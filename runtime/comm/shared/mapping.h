// Memory that processes of one host share, without a name: it cannot outlive them, whatever ends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rondo {

class Bootstrap;

// A mapped piece of anonymous shared memory; unmapped when it goes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, int64_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Collective. Memory that all `ranks` see, zeroed: `part_bytes` for each of them, one after the other; each
// rank reserves its own part, so that the pages lie near it and a lack of memory is an error, not a signal
// later. Parts of at least 2 MiB, rounded up to that by the caller, start on a huge page. The memory travels
// as a file descriptor: opened by way of /proc where the processes may do that, else passed through a socket.
// Throws on every rank or on none: Unavailable when the processes cannot reach each other's memory,
// DeviceError when there is not enough.
Mapping map_shared(Bootstrap& ranks, int64_t part_bytes);

}  // namespace rondo
