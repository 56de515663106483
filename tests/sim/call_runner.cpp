#include "tests/sim/call_runner.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <map>

namespace rondo::sim {
namespace {

std::byte* bytes_at(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));
}

bool scales(const Call& call) {
  return call.scale != 1.0 || call.device_scale != nullptr;
}

// How many blocks of `count` a rank reads and writes.
struct Blocks {
  size_t in = 0, out = 0;
};

Blocks blocks_of(const Call& call, int rank, int size) {
  const auto n = static_cast<size_t>(size);
  const bool root = rank == call.root;
  switch (call.kind) {
    case Kind::kAllReduce:
      return {1, 1};
    case Kind::kReduce:
      return {1, root ? size_t{1} : 0};
    case Kind::kBroadcast:
      return {root ? size_t{1} : 0, 1};
    case Kind::kAllGather:
      return {1, n};
    case Kind::kReduceScatter:
      return {n, 1};
    case Kind::kAllToAll:
      return {n, n};
    case Kind::kGather:
      return {1, root ? n : 0};
    case Kind::kScatter:
      return {root ? n : 0, 1};
    case Kind::kSend:
      return {1, 0};
    case Kind::kReceive:
      return {0, 1};
  }
  return {};
}

}  // namespace

std::vector<Access> accesses_of(const Call& call, int rank, int size) {
  const Blocks blocks = blocks_of(call, rank, size);
  const size_t bytes = call.count * size_of(call.type);
  std::vector<Access> accesses;
  if (blocks.in > 0) accesses.push_back({call.in, blocks.in * bytes, false});
  if (blocks.out > 0) accesses.push_back({call.out, blocks.out * bytes, true});
  if (call.device_scale != nullptr) accesses.push_back({call.device_scale, size_of(call.type), false});
  return accesses;
}

const char* CallRunner::name(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "ncclAllReduce";
    case Kind::kReduce:
      return "ncclReduce";
    case Kind::kBroadcast:
      return "ncclBroadcast";
    case Kind::kAllGather:
      return "ncclAllGather";
    case Kind::kReduceScatter:
      return "ncclReduceScatter";
    case Kind::kAllToAll:
      return "ncclAlltoAll";
    case Kind::kGather:
      return "ncclGather";
    case Kind::kScatter:
      return "ncclScatter";
    case Kind::kSend:
      return "ncclSend";
    case Kind::kReceive:
      return "ncclRecv";
  }
  return "";
}

Outcome CallRunner::run(const std::vector<Call>& calls, std::string& why) {
  std::vector<Call> points;
  for (const Call& call : calls) {
    if (call.kind == Kind::kSend || call.kind == Kind::kReceive) {
      points.push_back(call);
    } else {
      collective(call);
    }
  }
  if (!points.empty()) point_to_point(points);
  why = why_;
  return outcome_;
}

void CallRunner::begin(const Call& call) {
  transfers_.clear();
  peers_.clear();
  headers_.clear();
  const bool pair = call.kind == Kind::kSend || call.kind == Kind::kReceive;
  header_ = {.sequence = pair ? 0 : sequence_,
             .count = call.count,
             .kind = static_cast<int32_t>(pair ? Kind::kSend : call.kind),
             .type = call.type,
             .op = call.op,
             .root = pair ? 0 : call.root};
}

void CallRunner::send(int to, const std::byte* data, size_t bytes) {
  headers_.push_back(std::make_unique<Header>(header_));
  const Socket* socket = &comm_.data_[static_cast<size_t>(to)];
  transfers_.push_back({socket, bytes_at(headers_.back().get()), sizeof(Header), true});
  transfers_.push_back({socket, bytes_at(data), bytes, true});
  peers_.insert(peers_.end(), 2, to);
}

void CallRunner::receive(int from, std::byte* data, size_t bytes) {
  headers_.push_back(std::make_unique<Header>());
  const Socket* socket = &comm_.data_[static_cast<size_t>(from)];
  transfers_.push_back({socket, bytes_at(headers_.back().get()), sizeof(Header), false});
  transfers_.push_back({socket, data, bytes, false});
  peers_.insert(peers_.end(), 2, from);
}

void CallRunner::exchange() {
  if (outcome_ != Outcome::kDone) return;
  size_t lost = 0;
  outcome_ = run_transfers(transfers_, {&comm_.aborted, std::chrono::steady_clock::time_point::max()}, &lost);
  if (outcome_ == Outcome::kLost) {
    why_ = fmt::format("socketProgress: Connection closed by remote peer, rank {}", peers_[lost]);
    return;
  }
  for (size_t i = 0; i < headers_.size() && outcome_ == Outcome::kDone; ++i) {
    if (*headers_[i] == header_) continue;
    // The real NCCL hangs, or gives nonsense.
    fmt::print(
        stderr,
        "rondo_cuda_sim: rank {} calls {} of {} elements (operation {}), rank {} calls {} of {} elements "
        "(operation {})\n",
        comm_.rank(), name(static_cast<Kind>(header_.kind)), header_.count, header_.sequence, peers_[2 * i],
        name(static_cast<Kind>(headers_[i]->kind)), headers_[i]->count, headers_[i]->sequence);
    comm_.hang();
    outcome_ = Outcome::kStopped;
  }
  transfers_.clear();
  peers_.clear();
  headers_.clear();
}

void CallRunner::collective(const Call& call) {
  begin(call);
  const std::byte* in = bytes_at(call.in);
  if (scales(call) && blocks_of(call, comm_.rank(), comm_.size()).in > 0) {
    double factor = call.scale;
    if (call.device_scale != nullptr) {
      float value = 0.0f;
      if (call.type == ncclFloat64) {
        std::memcpy(&factor, call.device_scale, sizeof factor);
      } else {
        std::memcpy(&value, call.device_scale, sizeof value);
        factor = value;
      }
    }
    const size_t count = blocks_of(call, comm_.rank(), comm_.size()).in * call.count;
    scaled_.resize(count * size_of(call.type));
    scale(in, scaled_.data(), count, call.type, factor);
    in = scaled_.data();
  }
  switch (call.kind) {
    case Kind::kAllReduce:
      return all_reduce(call, in, bytes_at(call.out));
    case Kind::kReduce:
      return reduce_on_root(call, in, bytes_at(call.out));
    case Kind::kReduceScatter:
      return reduce_scatter(call, in, bytes_at(call.out));
    default:
      return move(call, in, bytes_at(call.out));
  }
}

// Each rank reduces one block, then sends it to all.
void CallRunner::all_reduce(const Call& call, const std::byte* in, std::byte* out) {
  const int n = comm_.size(), me = comm_.rank();
  const size_t size = size_of(call.type);
  const auto start = [&](int r) { return call.count * static_cast<size_t>(r) / static_cast<size_t>(n); };
  const auto length = [&](int r) { return (start(r + 1) - start(r)) * size; };
  std::vector<std::byte> stage(length(me) * static_cast<size_t>(n));
  std::vector<const std::byte*> all(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    if (r == me) {
      all[static_cast<size_t>(r)] = in + start(r) * size;
      continue;
    }
    std::byte* to = stage.data() + length(me) * static_cast<size_t>(r);
    all[static_cast<size_t>(r)] = to;
    send(r, in + start(r) * size, length(r));
    receive(r, to, length(me));
  }
  exchange();
  if (outcome_ != Outcome::kDone) return;
  reduce(all, out + start(me) * size, start(me + 1) - start(me), call);
  for (int r = 0; r < n; ++r) {
    if (r == me) continue;
    send(r, out + start(me) * size, length(me));
    receive(r, out + start(r) * size, length(r));
  }
  exchange();
}

void CallRunner::reduce_on_root(const Call& call, const std::byte* in, std::byte* out) {
  const int n = comm_.size(), me = comm_.rank();
  const size_t bytes = call.count * size_of(call.type);
  if (me != call.root) {
    send(call.root, in, bytes);
    return exchange();
  }
  std::vector<std::byte> stage(bytes * static_cast<size_t>(n));
  std::vector<const std::byte*> all(static_cast<size_t>(n), in);
  for (int r = 0; r < n; ++r) {
    if (r == me) continue;
    std::byte* to = stage.data() + bytes * static_cast<size_t>(r);
    all[static_cast<size_t>(r)] = to;
    receive(r, to, bytes);
  }
  exchange();
  if (outcome_ == Outcome::kDone) reduce(all, out, call.count, call);
}

void CallRunner::reduce_scatter(const Call& call, const std::byte* in, std::byte* out) {
  const int n = comm_.size(), me = comm_.rank();
  const size_t bytes = call.count * size_of(call.type);
  std::vector<std::byte> stage(bytes * static_cast<size_t>(n));
  std::vector<const std::byte*> all(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    if (r == me) {
      all[static_cast<size_t>(r)] = in + bytes * static_cast<size_t>(r);
      continue;
    }
    std::byte* to = stage.data() + bytes * static_cast<size_t>(r);
    all[static_cast<size_t>(r)] = to;
    send(r, in + bytes * static_cast<size_t>(r), bytes);
    receive(r, to, bytes);
  }
  exchange();
  if (outcome_ == Outcome::kDone) reduce(all, out, call.count, call);
}

void CallRunner::move(const Call& call, const std::byte* in, std::byte* out) {
  const int n = comm_.size(), me = comm_.rank();
  const size_t bytes = call.count * size_of(call.type);
  const auto block = [&](auto* data, int r) { return data + bytes * static_cast<size_t>(r); };
  const bool many_in = call.kind == Kind::kAllToAll || call.kind == Kind::kScatter;
  const bool many_out =
      call.kind == Kind::kAllToAll || call.kind == Kind::kAllGather || call.kind == Kind::kGather;
  const bool from_root = call.kind == Kind::kBroadcast || call.kind == Kind::kScatter;
  const bool to_root = call.kind == Kind::kGather;
  if ((!from_root || me == call.root) && (!to_root || me == call.root) && bytes > 0) {
    std::memmove(many_out ? block(out, me) : out, many_in ? block(in, me) : in, bytes);
  }
  for (int r = 0; r < n; ++r) {
    if (r == me) continue;
    const bool sends = from_root ? me == call.root : !to_root || r == call.root;
    const bool receives = from_root ? r == call.root : !to_root || me == call.root;
    if (sends) send(r, many_in ? block(in, r) : in, bytes);
    if (receives) receive(r, many_out ? block(out, r) : out, bytes);
  }
  exchange();
}

// All at once. What a rank sends to itself meets what it receives from itself in the order of the calls.
void CallRunner::point_to_point(const std::vector<Call>& calls) {
  std::vector<Call> to_self, from_self;
  std::vector<std::pair<Header, size_t>> expected;
  begin(calls.front());
  std::vector<Header> own;
  for (const Call& call : calls) {
    const size_t bytes = call.count * size_of(call.type);
    header_ = {.sequence = 0,
               .count = call.count,
               .kind = static_cast<int32_t>(Kind::kSend),
               .type = call.type,
               .op = 0,
               .root = 0};
    if (call.root == comm_.rank()) {
      (call.kind == Kind::kSend ? to_self : from_self).push_back(call);
    } else if (call.kind == Kind::kSend) {
      send(call.root, bytes_at(call.in), bytes);
    } else {
      receive(call.root, bytes_at(call.out), bytes);
      expected.emplace_back(header_, headers_.size() - 1);
    }
  }
  for (size_t i = 0; i < std::min(to_self.size(), from_self.size()); ++i) {
    std::memmove(bytes_at(from_self[i].out), to_self[i].in, to_self[i].count * size_of(to_self[i].type));
  }
  size_t lost = 0;
  outcome_ = run_transfers(transfers_, {&comm_.aborted, std::chrono::steady_clock::time_point::max()}, &lost);
  if (outcome_ == Outcome::kLost) {
    why_ = fmt::format("socketProgress: Connection closed by remote peer, rank {}", peers_[lost]);
    return;
  }
  for (const auto& [header, at] : expected) {
    if (outcome_ != Outcome::kDone || *headers_[at] == header) continue;
    fmt::print(stderr, "rondo_cuda_sim: rank {} receives {} elements, {} were sent\n", comm_.rank(),
               header.count, headers_[at]->count);
    comm_.hang();
    outcome_ = Outcome::kStopped;
  }
}

}  // namespace rondo::sim
