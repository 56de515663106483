// How processes of one host talk before they share memory.
#pragma once

#include <cstddef>
#include <span>

namespace rondo {

// An all-gather of small blobs among the ranks that are about to share memory, over whatever connects them
// already: MPI, a socket, or a segment that they share. Every function is collective.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // `all` is size() times as long as `mine`, which has the same length everywhere.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

}  // namespace rondo
