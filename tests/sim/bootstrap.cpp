#include "tests/sim/bootstrap.h"

#include <cstring>
#include <random>
#include <thread>

namespace rondo::sim {
namespace {

constexpr uint64_t kMagic = 0x756e697175652d69ull;
constexpr std::chrono::minutes kOpen(10);

struct Id {
  uint64_t magic = kMagic;
  uint64_t key = 0;
  Address address;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

struct Arrival {
  uint64_t key = 0;
  Member member;
};

void serve(const Socket& listener, uint64_t key) {
  const Wait wait{nullptr, std::chrono::steady_clock::now() + kOpen};
  std::vector<Socket> sockets;
  std::vector<Member> table;
  size_t missing = 1;
  while (missing > 0) {
    Socket socket;
    if (accept_from(listener, wait, socket) != Outcome::kDone) return;
    Arrival arrival;
    const Wait soon{nullptr, std::chrono::steady_clock::now() + std::chrono::seconds(5)};
    if (receive_all(socket, &arrival, sizeof arrival, soon) != Outcome::kDone || arrival.key != key) continue;
    if (sockets.empty()) {
      sockets.resize(static_cast<size_t>(arrival.member.size));
      table.resize(sockets.size());
      missing = sockets.size();
    }
    const auto rank = static_cast<size_t>(arrival.member.rank);
    // Another number of ranks, or the same rank twice: nobody will ever meet.
    if (static_cast<size_t>(arrival.member.size) != table.size() || sockets[rank]) return;
    table[rank] = arrival.member;
    sockets[rank] = std::move(socket);
    --missing;
  }
  for (const Socket& socket : sockets) send_all(socket, table.data(), table.size() * sizeof(Member), wait);
}

}  // namespace

ncclResult_t open_bootstrap(ncclUniqueId& id, std::string& why) {
  Id made;
  const uint32_t ip = own_address();
  Socket listener;
  if (ip != 0) listener = listen_on(ip, made.address);
  if (!listener) {
    why = "Bootstrap : no socket interface found";
    return ncclInternalError;
  }
  made.key = (static_cast<uint64_t>(std::random_device()()) << 32) | std::random_device()();
  std::memset(&id, 0, sizeof id);
  std::memcpy(id.internal, &made, sizeof made);
  std::thread([socket = std::move(listener), key = made.key] { serve(socket, key); }).detach();
  return ncclSuccess;
}

ncclResult_t meet_at(const ncclUniqueId& id, const Member& own, const Wait& wait, std::vector<Member>& table,
                     std::string& why) {
  Id where;
  std::memcpy(&where, id.internal, sizeof where);
  if (where.magic != kMagic) {
    why = "the unique id was not made by ncclGetUniqueId";
    return ncclInvalidArgument;
  }
  const Arrival arrival{where.key, own};
  table.resize(static_cast<size_t>(own.size));
  Socket socket;
  if (connect_to(where.address, wait, socket) == Outcome::kDone &&
      send_all(socket, &arrival, sizeof arrival, wait) == Outcome::kDone &&
      receive_all(socket, table.data(), table.size() * sizeof(Member), wait) == Outcome::kDone) {
    return ncclSuccess;
  }
  why = "Bootstrap : the ranks did not meet";
  return ncclSystemError;
}

}  // namespace rondo::sim
