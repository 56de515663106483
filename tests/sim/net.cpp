#include "tests/sim/net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace rondo::sim {
namespace {

constexpr int kTick = 20;  // milliseconds between looks at the flag

sockaddr_in as_sockaddr(const Address& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = address.ip;
  result.sin_port = address.port;
  return result;
}

void set_up(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Outcome over(const Wait& wait) {
  if (wait.stop != nullptr && wait.stop->load()) return Outcome::kStopped;
  return std::chrono::steady_clock::now() > wait.deadline ? Outcome::kLate : Outcome::kDone;
}

// NCCL_SOCKET_IFNAME: prefixes separated by commas; = in front: whole names; ^: all others.
bool chosen(const std::string& name, const char* list) {
  std::string rest(list);
  const bool exact = rest.rfind('=', 0) == 0 || rest.rfind("^=", 0) == 0;
  const bool exclude = rest.rfind('^', 0) == 0;
  rest.erase(0, rest.find_first_not_of("^="));
  bool found = false;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string word = rest.substr(0, comma);
    rest.erase(0, std::min(comma + 1, rest.size()));
    found |= exact ? name == word : name.rfind(word, 0) == 0;
  }
  return found != exclude;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
void Socket::shut_down() const {
  if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
}

uint32_t own_address() {
  const char* list = std::getenv("NCCL_SOCKET_IFNAME");
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return 0;
  uint32_t loopback = 0, found = 0;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0)
      continue;
    sockaddr_in address;
    std::memcpy(&address, each->ifa_addr, sizeof address);
    if (list != nullptr && *list != '\0') {
      if (found == 0 && chosen(each->ifa_name, list)) found = address.sin_addr.s_addr;
    } else if ((each->ifa_flags & IFF_LOOPBACK) != 0) {
      loopback = address.sin_addr.s_addr;
    } else if (found == 0) {
      found = address.sin_addr.s_addr;
    }
  }
  freeifaddrs(interfaces);
  return found != 0 ? found : loopback;
}

Socket listen_on(uint32_t ip, Address& address) {
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = as_sockaddr({ip, 0});
  socklen_t length = sizeof name;
  if (!listener || ::bind(listener.descriptor(), reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 ||
      ::listen(listener.descriptor(), 256) != 0 ||
      ::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    return {};
  }
  fcntl(listener.descriptor(), F_SETFL, O_NONBLOCK);
  address = {ip, name.sin_port};
  return listener;
}

Outcome connect_to(const Address& address, const Wait& wait, Socket& socket) {
  for (;;) {
    Socket next(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!next) return Outcome::kLost;
    set_up(next.descriptor());
    const sockaddr_in name = as_sockaddr(address);
    int error =
        ::connect(next.descriptor(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 ? 0 : errno;
    while (error == EINPROGRESS) {
      pollfd waiting{next.descriptor(), POLLOUT, 0};
      if (::poll(&waiting, 1, kTick) > 0) {
        socklen_t length = sizeof error;
        ::getsockopt(next.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
      } else if (const Outcome outcome = over(wait); outcome != Outcome::kDone) {
        return outcome;
      }
    }
    if (error == 0) {
      socket = std::move(next);
      return Outcome::kDone;
    }
    if (const Outcome outcome = over(wait); outcome != Outcome::kDone) return outcome;
    std::this_thread::sleep_for(std::chrono::milliseconds(kTick));
  }
}

Outcome accept_from(const Socket& listener, const Wait& wait, Socket& socket) {
  for (;;) {
    pollfd waiting{listener.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kTick) > 0) {
      const int taken = ::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
      if (taken >= 0) {
        set_up(taken);
        socket = Socket(taken);
        return Outcome::kDone;
      }
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return Outcome::kLost;
    }
    if (const Outcome outcome = over(wait); outcome != Outcome::kDone) return outcome;
  }
}

Outcome run_transfers(std::span<Transfer> transfers, const Wait& wait, size_t* lost) {
  std::vector<pollfd> waiting;
  std::vector<size_t> which;
  for (;;) {
    waiting.clear();
    which.clear();
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& each = transfers[i];
      if (each.done == each.bytes) continue;
      const bool behind = std::any_of(which.begin(), which.end(), [&](size_t other) {
        return transfers[other].socket == each.socket && transfers[other].out == each.out;
      });
      if (behind) continue;
      which.push_back(i);
      waiting.push_back({each.socket->descriptor(), static_cast<short>(each.out ? POLLOUT : POLLIN), 0});
    }
    if (which.empty()) return Outcome::kDone;
    if (::poll(waiting.data(), waiting.size(), kTick) <= 0) {
      if (const Outcome outcome = over(wait); outcome != Outcome::kDone) return outcome;
      continue;
    }
    for (size_t i = 0; i < which.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      Transfer& each = transfers[which[i]];
      const size_t left = each.bytes - each.done;
      const ssize_t moved = each.out ? ::send(waiting[i].fd, each.data + each.done, left, MSG_NOSIGNAL)
                                     : ::recv(waiting[i].fd, each.data + each.done, left, 0);
      if (moved > 0) {
        each.done += static_cast<size_t>(moved);
      } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (lost != nullptr) *lost = which[i];
        return wait.stop != nullptr && wait.stop->load() ? Outcome::kStopped : Outcome::kLost;
      }
    }
  }
}

Outcome send_all(const Socket& socket, const void* data, size_t bytes, const Wait& wait) {
  Transfer transfer{&socket, static_cast<std::byte*>(const_cast<void*>(data)), bytes, true};
  return run_transfers({&transfer, 1}, wait);
}

Outcome receive_all(const Socket& socket, void* data, size_t bytes, const Wait& wait) {
  Transfer transfer{&socket, static_cast<std::byte*>(data), bytes, false};
  return run_transfers({&transfer, 1}, wait);
}

}  // namespace rondo::sim
