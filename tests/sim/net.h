// Sockets between ranks. Every wait looks at a flag, and ends soon after it is set.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace rondo::sim {

struct Address {
  uint32_t ip = 0;  // network byte order
  uint16_t port = 0;
};

enum class Outcome : uint8_t { kDone, kStopped, kLate, kLost };

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();
  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void shut_down() const;  // ends the waits of other threads

 private:
  int descriptor_ = -1;
};

struct Wait {
  const std::atomic<bool>* stop = nullptr;
  std::chrono::steady_clock::time_point deadline;
};

// The address that NCCL_SOCKET_IFNAME leaves, else the first that is not of a loopback; 0 when there is none.
uint32_t own_address();
Socket listen_on(uint32_t ip, Address& address);
Outcome connect_to(const Address& address, const Wait& wait, Socket& socket);
Outcome accept_from(const Socket& listener, const Wait& wait, Socket& socket);

// Bytes to or from a socket. Transfers of one socket and direction happen in their order, all others at once.
struct Transfer {
  const Socket* socket = nullptr;
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool out = false;
  size_t done = 0;
};
Outcome run_transfers(std::span<Transfer> transfers, const Wait& wait, size_t* lost = nullptr);

Outcome send_all(const Socket& socket, const void* data, size_t bytes, const Wait& wait);
Outcome receive_all(const Socket& socket, void* data, size_t bytes, const Wait& wait);

}  // namespace rondo::sim
