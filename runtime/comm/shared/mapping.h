// Memory that processes of one host share, without a name: it cannot outlive them, whatever ends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rondo {

class Bootstrap;

// A mapped piece of anonymous shared memory, made of one part for each rank; unmapped when it goes.
class Mapping {
 public:
  Mapping() = default;
  // Part r is the places[r]-th. What is not `owned` stays mapped.
  Mapping(void* data, int64_t bytes, int64_t stride, std::span<const int> places, bool owned);
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_),
        owned_(other.owned_),
        parts_(std::move(other.parts_)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = other.bytes_;
      owned_ = other.owned_;
      parts_ = std::move(other.parts_);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  std::byte* part(int rank) const { return parts_[static_cast<size_t>(rank)]; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  bool owned_ = false;
  std::vector<std::byte*> parts_;  // by rank
};

// Another way to memory that processes share, where descriptors cannot be passed.
class SharedWindows {
 public:
  virtual ~SharedWindows() = default;
  // Collective among these ranks of the world. Zeroed memory, which lives as long as the process: pages of it
  // that lie at the same offset in a page everywhere. Throws Error, perhaps on some ranks only.
  virtual std::byte* make(std::span<const int> world_ranks, int64_t bytes) = 0;
};

// How the memory's file descriptor comes to the other processes.
enum class Passing : uint8_t {
  kAuto,    // opened by way of /proc where the processes may do that, else by kSocket
  kSocket,  // sent through a local socket
  kWindow,  // not at all: SharedWindows make the memory
};

struct MappingOptions {
  Passing passing = Passing::kAuto;
  SharedWindows* windows = nullptr;       // for kWindow
  std::span<const int> world_ranks = {};  // of the ranks, for kWindow
  std::span<const int> places = {};       // by rank: where its part lies among the parts; empty: in order
};

// Collective. Memory that all `ranks` see, zeroed: at least `part_bytes` for each of them. Each rank reserves
// its own part, so that the pages lie near it and a lack of memory is an error here, not a signal later.
// Parts start on a page, and those of at least 2 MiB on a huge page (but for windows). Calls all_gather the
// same number of times on every rank, whatever happens, and throws on every rank or on none: Unavailable when
// the processes cannot reach each other's memory, DeviceError when there is not enough or no window.
Mapping map_shared(Bootstrap& ranks, int64_t part_bytes, const MappingOptions& options = {});

}  // namespace rondo
