// Memory that processes of one host share, without a name: it cannot outlive them, whatever ends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rondo {

class Bootstrap;

// A mapped piece of anonymous shared memory, made of one part for each rank; unmapped when it goes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, int64_t bytes, int64_t stride)
      : data_(static_cast<std::byte*>(data)), bytes_(bytes), stride_(stride) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), stride_(other.stride_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = other.bytes_;
      stride_ = other.stride_;
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  std::byte* part(int rank) const { return data_ + rank * stride_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t stride_ = 0;
};

// How the memory's file descriptor comes to the other processes.
enum class Passing : uint8_t {
  kAuto,    // opened by way of /proc where the processes may do that, else by kSocket
  kSocket,  // sent through a local socket
};

// Collective. Memory that all `ranks` see, zeroed: at least `part_bytes` for each of them. Each rank reserves
// its own part, so that the pages lie near it and a lack of memory is an error here, not a signal later.
// Parts of at least 2 MiB start on a huge page, shorter ones on a page. Calls all_gather the same number of
// times on every rank, whatever happens, and throws on every rank or on none: Unavailable when the processes
// cannot reach each other's memory, DeviceError when there is not enough.
Mapping map_shared(Bootstrap& ranks, int64_t part_bytes, Passing passing = Passing::kAuto);

}  // namespace rondo
