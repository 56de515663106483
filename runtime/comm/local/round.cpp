#include "runtime/comm/local/round.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/comm/reduce.h"
#include "runtime/comm/topology.h"
#include "runtime/device/device.h"

namespace rondo::local {

void Post::take(const Call& from) {
  here = true;
  call = from;
  counts.assign(from.counts.begin(), from.counts.end());
  receive_counts.assign(from.receive_counts.begin(), from.receive_counts.end());
  pairs.assign(from.pairs.begin(), from.pairs.end());
  call.counts = call.receive_counts = {};
  call.pairs = {};
}

Topology Group::topology(int rank) const {
  std::vector<std::string> hosts;
  for (const int world : world_ranks) hosts.push_back(family->hosts[static_cast<size_t>(world)]);
  return make_topology(hosts, rank);
}

Round& Group::round(int64_t sequence) {
  const auto found =
      std::find_if(active.begin(), active.end(), [&](Round* r) { return r->sequence == sequence; });
  if (found != active.end()) return **found;
  if (idle.empty()) {
    rounds.push_back(std::make_unique<Round>());
    rounds.back()->posts.resize(world_ranks.size());
    idle.push_back(rounds.back().get());
  }
  Round& fresh = *idle.back();
  idle.pop_back();
  fresh.sequence = sequence;
  active.push_back(&fresh);
  return fresh;
}

void Group::release(Round& round) {
  if (++round.released < size()) return;
  std::erase(active, &round);
  round.arrived = round.released = 0;
  round.done = false;
  round.mismatch.clear();
  round.children.clear();
  for (Post& post : round.posts) post.here = false;
  idle.push_back(&round);
}

namespace {

std::byte* at(void* data, int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}
const std::byte* at(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

Reduction reduction_of(const Round& round) {
  const Signature& call = round.posts[0].call.signature;
  return {.dtype = call.dtype,
          .op = call.op,
          .prescale = call.prescale,
          .postscale = call.postscale,
          .divisor = call.op == ReduceOp::kAverage ? static_cast<int>(round.posts.size()) : 1};
}

// The sum is made once and given to every rank's output.
void run_all_reduce(Round& round) {
  round.inputs.clear();
  round.outputs.clear();
  for (const Post& post : round.posts) {
    round.inputs.push_back(post.call.in.data);
    round.outputs.push_back(post.call.out.data);
  }
  reduce(reduction_of(round), round.inputs, round.outputs, round.posts[0].call.in.count);
}

void run_all_reduce_group(Round& round) {
  for (size_t i = 0; i < round.posts[0].pairs.size(); ++i) {
    round.inputs.clear();
    round.outputs.clear();
    for (const Post& post : round.posts) {
      round.inputs.push_back(post.pairs[i].in.data);
      round.outputs.push_back(post.pairs[i].out.data);
    }
    reduce(reduction_of(round), round.inputs, round.outputs, round.posts[0].pairs[i].in.count);
  }
}

void run_reduce_scatter(Round& round) {
  const int64_t element = dtype_size(round.posts[0].call.signature.dtype);
  int64_t before = 0;
  for (size_t r = 0; r < round.posts.size(); ++r) {
    round.inputs.clear();
    for (const Post& post : round.posts) round.inputs.push_back(at(post.call.in.data, before));
    void* const out = round.posts[r].call.out.data;
    reduce(reduction_of(round), round.inputs, std::span(&out, 1), round.posts[r].call.out.count);
    before += round.posts[r].call.out.count * element;
  }
}

void run_broadcast(const Round& round) {
  const Signature& call = round.posts[0].call.signature;
  const void* const from = round.posts[static_cast<size_t>(call.root)].call.in.data;
  for (const Post& post : round.posts) copy_bytes(post.call.out.data, from, call.bytes());
}

void run_gather(const Round& round, const Post& target) {
  int64_t before = 0;
  for (const Post& source : round.posts) {
    copy_bytes(at(target.call.out.data, before), source.call.in.data, source.call.in.bytes());
    before += source.call.in.bytes();
  }
}

void run_scatter(const Round& round) {
  const Post& root = round.posts[static_cast<size_t>(round.posts[0].call.signature.root)];
  int64_t before = 0;
  for (const Post& target : round.posts) {
    copy_bytes(target.call.out.data, at(root.call.in.data, before), target.call.out.bytes());
    before += target.call.out.bytes();
  }
}

void run_all_to_all(Group& group, Round& round) {
  const size_t size = round.posts.size();
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      const int64_t sent = round.posts[from].counts[to];
      const int64_t expected = round.posts[to].receive_counts[from];
      if (sent == expected) continue;
      round.mismatch = split_mismatch(group.topology(0), round.posts[0].call.signature,
                                      {static_cast<int>(from), static_cast<int>(to), sent, expected});
      return;
    }
  }
  const int64_t element = dtype_size(round.posts[0].call.signature.dtype);
  // Outputs may be inputs, so all inputs are put aside first.
  int64_t total = 0;
  for (const Post& post : round.posts) total += post.call.in.bytes();
  round.staging.resize(static_cast<size_t>(total));
  total = 0;
  for (const Post& post : round.posts) {
    copy_bytes(at(round.staging.data(), total), post.call.in.data, post.call.in.bytes());
    total += post.call.in.bytes();
  }
  std::vector<int64_t> written(size, 0);
  int64_t read = 0;
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      const int64_t bytes = round.posts[from].counts[to] * element;
      copy_bytes(at(round.posts[to].call.out.data, written[to]), at(round.staging.data(), read), bytes);
      read += bytes;
      written[to] += bytes;
    }
  }
}

void run_split(Group& group, Round& round) {
  std::vector<int> order(round.posts.size());
  std::iota(order.begin(), order.end(), 0);
  const auto post = [&](int rank) -> const Post& { return round.posts[static_cast<size_t>(rank)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(post(a).call.color, post(a).call.key) < std::pair(post(b).call.color, post(b).call.key);
  });
  round.children.assign(round.posts.size(), {nullptr, 0});
  std::shared_ptr<Group> child;
  for (size_t i = 0; i < order.size(); ++i) {
    const int color = post(order[i]).call.color;
    if (color < 0) continue;
    if (child == nullptr || color != post(order[i - 1]).call.color) {
      child = std::make_shared<Group>();
      child->family = group.family;
    }
    round.children[static_cast<size_t>(order[i])] = {child, child->size()};
    child->world_ranks.push_back(group.world_ranks[static_cast<size_t>(order[i])]);
  }
}

}  // namespace

void run_round(Group& group, Round& round) {
  Consensus consensus(round.posts[0].call.signature, 0);
  for (int r = 1; r < group.size(); ++r) {
    consensus.merge(Consensus(round.posts[static_cast<size_t>(r)].call.signature, r));
  }
  if (consensus.differs()) {
    round.mismatch = consensus.message(group.topology(0));
    return;
  }
  switch (consensus.base.kind) {
    case CollectiveKind::kAllReduce:
      return run_all_reduce(round);
    case CollectiveKind::kAllReduceGroup:
      return run_all_reduce_group(round);
    case CollectiveKind::kReduceScatter:
      return run_reduce_scatter(round);
    case CollectiveKind::kBroadcast:
      return run_broadcast(round);
    case CollectiveKind::kAllGatherV:
      for (const Post& post : round.posts) run_gather(round, post);
      return;
    case CollectiveKind::kAllToAllV:
      return run_all_to_all(group, round);
    case CollectiveKind::kGatherV:
      return run_gather(round, round.posts[static_cast<size_t>(consensus.base.root)]);
    case CollectiveKind::kScatterV:
      return run_scatter(round);
    case CollectiveKind::kSplit:
      return run_split(group, round);
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace rondo::local
