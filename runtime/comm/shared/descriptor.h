// File descriptors, and how one process gives another a copy of one.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace rondo {

// Owns a file descriptor. -1, what the system calls return in an error, is empty.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      if (value_ >= 0) close(value_);
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }

 private:
  int value_ = -1;
};

// Gives a descriptor to other processes of this host and user through a socket without a name in the file
// system. Every call waits for a few seconds at most and returns false, with errno set, when it failed.
class DescriptorServer {
 public:
  bool listen(uint64_t name);
  bool send_to(const Descriptor& descriptor, int receivers);

 private:
  Descriptor socket_;
};

// Empty, with errno set, when it failed.
Descriptor receive_descriptor(uint64_t name);

}  // namespace rondo
