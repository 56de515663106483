#include "runtime/comm/shared/descriptor.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace rondo {
namespace {

constexpr int kPatienceSeconds = 10;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(uint64_t name) {
    // A leading zero byte: the name lives in the kernel only, and goes with the socket.
    const std::string text = fmt::format("rondo-{:016x}", name);
    address.sun_family = AF_UNIX;
    std::copy(text.begin(), text.end(), address.sun_path + 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Descriptor make_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{kPatienceSeconds, 0};
  if (made) {
    setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(made.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }
  return made;
}

bool same_user(const Descriptor& peer) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

// A message of one byte with room for one descriptor beside it.
struct Parcel {
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};

  Parcel() {
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
};

bool send_one(const Descriptor& peer, int descriptor) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  return sendmsg(peer.get(), &parcel.message, MSG_NOSIGNAL) == 1;
}

}  // namespace

bool DescriptorServer::listen(uint64_t name) {
  const Address address(name);
  socket_ = make_socket();
  return socket_ && bind(socket_.get(), address.get(), address.length) == 0 &&
         ::listen(socket_.get(), 128) == 0;
}

bool DescriptorServer::send_to(const Descriptor& descriptor, int receivers) {
  while (receivers > 0) {
    const Descriptor peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return false;
    if (!same_user(peer)) continue;
    if (!send_one(peer, descriptor.get())) return false;
    --receivers;
  }
  return true;
}

Descriptor receive_descriptor(uint64_t name) {
  const Address address(name);
  const Descriptor peer = make_socket();
  if (!peer || connect(peer.get(), address.get(), address.length) != 0) return Descriptor();
  Parcel parcel;
  if (recvmsg(peer.get(), &parcel.message, MSG_CMSG_CLOEXEC) != 1) return Descriptor();
  const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    errno = EPROTO;
    return Descriptor();
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return Descriptor(descriptor);
}

}  // namespace rondo
