#include "runtime/comm/local/local_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/signature.h"
#include "runtime/comm/topology.h"
#include "runtime/device/cpu/cpu_device.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// What all communicators of one world share: one lock, one failure.
struct Family {
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;
  std::vector<std::string> hosts;  // by world rank
  std::chrono::milliseconds deadline;
  std::unique_ptr<Device> device = make_cpu_device(1);
};

struct Group;

// What one rank brings to a collective.
struct Post {
  bool here = false;
  Signature signature;
  ConstSpan in;
  Span out;
  int color = 0;
  int key = 0;
};

// One collective of one group, from the first arrival until every rank has let go of it.
struct Round {
  int64_t sequence = 0;
  int arrived = 0;
  int released = 0;
  bool done = false;
  std::string mismatch;
  std::vector<Post> posts;
  std::vector<int64_t> counts;
  std::vector<std::pair<std::shared_ptr<Group>, int>>
      children;  // split: each rank's new group and its rank there
};

struct Group {
  std::shared_ptr<Family> family;
  std::vector<int> world_ranks;
  std::vector<std::unique_ptr<Round>> rounds;  // all that were ever needed at once
  std::vector<Round*> active;
  std::vector<Round*> idle;

  int size() const { return static_cast<int>(world_ranks.size()); }
  Topology topology(int rank) const {
    std::vector<std::string> hosts;
    for (const int world : world_ranks) hosts.push_back(family->hosts[static_cast<size_t>(world)]);
    return make_topology(hosts, rank);
  }
  Round& round(int64_t sequence);
  void release(Round& round);
};

Round& Group::round(int64_t sequence) {
  const auto found =
      std::find_if(active.begin(), active.end(), [&](Round* r) { return r->sequence == sequence; });
  if (found != active.end()) return **found;
  if (idle.empty()) {
    rounds.push_back(std::make_unique<Round>());
    rounds.back()->posts.resize(world_ranks.size());
    rounds.back()->counts.reserve(world_ranks.size());
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

// The work of a collective, done by the rank that arrives last.

void run_all_reduce(const Round& round, std::vector<const void*>& inputs) {
  // By blocks, since an output may be an input of the same round; the sum is made aside, then given to all.
  constexpr int64_t kBlockBytes = 4096;
  alignas(64) std::array<std::byte, kBlockBytes> sum;
  const Signature& call = round.posts[0].signature;
  const int64_t element = dtype_size(call.dtype);
  const int64_t block = kBlockBytes / element;
  for (int64_t begin = 0; begin < call.count; begin += block) {
    const int64_t n = std::min(block, call.count - begin);
    inputs.clear();
    for (const Post& post : round.posts) {
      inputs.push_back(static_cast<const std::byte*>(post.in.data) + begin * element);
    }
    reduce_all(call.dtype, call.op, inputs, sum.data(), n);
    for (const Post& post : round.posts) {
      std::memcpy(static_cast<std::byte*>(post.out.data) + begin * element, sum.data(),
                  static_cast<size_t>(n * element));
    }
  }
}

void run_broadcast(const Round& round) {
  const Signature& call = round.posts[0].signature;
  const Post& root = round.posts[static_cast<size_t>(call.root)];
  for (const Post& post : round.posts) {
    if (&post != &root && call.count > 0) {
      std::memcpy(post.out.data, root.in.data, static_cast<size_t>(call.bytes()));
    }
  }
}

void run_all_gather(const Round& round) {
  for (const Post& target : round.posts) {
    auto* at = static_cast<std::byte*>(target.out.data);
    for (const Post& source : round.posts) {
      const int64_t bytes = source.in.bytes();
      if (bytes > 0 && at != source.in.data) std::memcpy(at, source.in.data, static_cast<size_t>(bytes));
      at += bytes;
    }
  }
}

void run_split(Group& group, Round& round) {
  std::vector<int> order(round.posts.size());
  std::iota(order.begin(), order.end(), 0);
  const auto post = [&](int rank) -> const Post& { return round.posts[static_cast<size_t>(rank)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(post(a).color, post(a).key) < std::pair(post(b).color, post(b).key);
  });
  round.children.assign(round.posts.size(), {nullptr, 0});
  std::shared_ptr<Group> child;
  for (size_t i = 0; i < order.size(); ++i) {
    const int color = post(order[i]).color;
    if (color < 0) continue;
    if (child == nullptr || color != post(order[i - 1]).color) {
      child = std::make_shared<Group>();
      child->family = group.family;
    }
    round.children[static_cast<size_t>(order[i])] = {child, child->size()};
    child->world_ranks.push_back(group.world_ranks[static_cast<size_t>(order[i])]);
  }
}

void run_round(Group& group, Round& round, std::vector<const void*>& inputs) {
  Consensus consensus(round.posts[0].signature, 0);
  for (int r = 1; r < group.size(); ++r) {
    consensus.merge(Consensus(round.posts[static_cast<size_t>(r)].signature, r));
  }
  if (consensus.differs()) {
    round.mismatch = consensus.message(group.topology(0));
    return;
  }
  switch (consensus.base.kind) {
    case CollectiveKind::kAllReduce:
      return run_all_reduce(round, inputs);
    case CollectiveKind::kBroadcast:
      return run_broadcast(round);
    case CollectiveKind::kAllGatherV:
      return run_all_gather(round);
    case CollectiveKind::kSplit:
      return run_split(group, round);
    case CollectiveKind::kBarrier:
      return;
  }
}

class LocalCommunicator;

class LocalWork final : public WorkState {
 public:
  explicit LocalWork(LocalCommunicator& comm) : comm_(comm) {}
  bool ready() override;
  void wait() override;
  void order_before(Stream&) override { wait(); }
  void release() override;

 private:
  friend class LocalCommunicator;
  void raise_error() const;
  // A round in which all have arrived is being worked on, and its buffers are in use: it ends well in any
  // case.
  bool failed() const;

  LocalCommunicator& comm_;
  Round* round_ = nullptr;
  Clock::time_point deadline_;
  std::chrono::milliseconds limit_{0};
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), topology_(group_->topology(rank)) {
    inputs_.reserve(group_->world_ranks.size());
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const Topology& topology() const override { return topology_; }
  std::string name() const override { return "threads"; }
  Buffer allocate(int64_t bytes) override { return family().device->allocate(bytes); }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    check_all_reduce(in, out, op);
    Signature call = signature(CollectiveKind::kAllReduce, out, options);
    call.op = op;
    return start(call, in, out, options);
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    check_broadcast(buffer, root, size());
    Signature call = signature(CollectiveKind::kBroadcast, buffer, options);
    call.root = root;
    return start(call, buffer, buffer, options);
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    check_all_gather_v(in, out, counts, rank_, size());
    Signature call = signature(CollectiveKind::kAllGatherV, out, options);
    call.counts_hash = hash_bytes(counts.data(), static_cast<int64_t>(counts.size_bytes()));
    return start(call, in, out, options);
  }
  Work barrier(const CollectiveOptions& options) override {
    return start(signature(CollectiveKind::kBarrier, {}, options), {}, {}, options);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    LocalWork& work = post(signature(CollectiveKind::kSplit, {}, {}), {}, {}, {}, color, key);
    Work handle(&work);
    work.wait();
    auto [group, rank] = work.round_->children[static_cast<size_t>(rank_)];
    return group == nullptr ? nullptr : std::make_unique<LocalCommunicator>(std::move(group), rank);
  }

  void progress() override {}

  void publish_failure(std::string_view reason) noexcept override {
    const std::lock_guard lock(family().mutex);
    fail(reason);
  }

 private:
  friend class LocalWork;
  Family& family() const { return *group_->family; }

  // With the lock held.
  void fail(std::string_view reason) {
    if (family().failure.empty()) {
      const int world = group_->world_ranks[static_cast<size_t>(rank_)];
      family().failure =
          fmt::format("rank {} ({}): {}", world, family().hosts[static_cast<size_t>(world)], reason);
    }
    family().changed.notify_all();
  }

  Signature signature(CollectiveKind kind, ConstSpan span, const CollectiveOptions& options) const {
    Signature call;
    call.sequence = sequence_;
    call.kind = kind;
    call.count = span.count;
    call.dtype = span.dtype;
    call.set_label(options.label);
    return call;
  }

  Work start(const Signature& call, ConstSpan in, Span out, const CollectiveOptions& options) {
    return Work(&post(call, in, out, options, 0, 0));
  }

  LocalWork& post(const Signature& call, ConstSpan in, Span out, const CollectiveOptions& options, int color,
                  int key);

  std::shared_ptr<Group> group_;
  int rank_;
  Topology topology_;
  int64_t sequence_ = 0;
  std::vector<std::unique_ptr<LocalWork>> works_;
  std::vector<LocalWork*> idle_;
  std::vector<const void*> inputs_;
};

LocalWork& LocalCommunicator::post(const Signature& call, ConstSpan in, Span out,
                                   const CollectiveOptions& options, int color, int key) {
  std::unique_lock lock(family().mutex);
  if (!family().failure.empty()) throw PeerError(family().failure);
  if (idle_.empty()) {
    works_.push_back(std::make_unique<LocalWork>(*this));
    idle_.push_back(works_.back().get());
  }
  LocalWork& work = *idle_.back();
  idle_.pop_back();
  ++sequence_;
  Round& round = group_->round(call.sequence);
  round.posts[static_cast<size_t>(rank_)] = Post{true, call, in, out, color, key};
  work.round_ = &round;
  work.limit_ = options.deadline.count() > 0 ? options.deadline : family().deadline;
  work.deadline_ = Clock::now() + work.limit_;
  if (++round.arrived == size()) {
    lock.unlock();
    run_round(*group_, round, inputs_);
    lock.lock();
    round.done = true;
    family().changed.notify_all();
  }
  return work;
}

bool LocalWork::failed() const {
  return !comm_.family().failure.empty() && round_->arrived < comm_.size();
}

void LocalWork::raise_error() const {
  if (round_->done) {
    if (!round_->mismatch.empty()) throw MismatchError(round_->mismatch);
  } else if (failed()) {
    throw PeerError(comm_.family().failure);
  }
}

bool LocalWork::ready() {
  const std::lock_guard lock(comm_.family().mutex);
  raise_error();
  return round_->done;
}

void LocalWork::wait() {
  std::unique_lock lock(comm_.family().mutex);
  const auto over = [this] { return round_->done || failed(); };
  if (!comm_.family().changed.wait_until(lock, deadline_, over) && round_->arrived < comm_.size()) {
    std::string missing;
    for (int r = 0; r < comm_.size(); ++r) {
      if (round_->posts[static_cast<size_t>(r)].here) continue;
      missing += (missing.empty() ? "" : ", ") + rank_name(comm_.topology_, r);
    }
    const Signature& call = round_->posts[static_cast<size_t>(comm_.rank_)].signature;
    comm_.fail(fmt::format("{} of {} bytes was not done within {} ms: waited for {}", call_name(call),
                           call.bytes(), limit_.count(), missing));
  }
  comm_.family().changed.wait(lock, over);
  raise_error();
}

void LocalWork::release() {
  const std::lock_guard lock(comm_.family().mutex);
  comm_.group_->release(*round_);
  round_ = nullptr;
  comm_.idle_.push_back(this);
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, const LocalOptions& options) {
  require(size >= 1, "a world needs at least 1 rank, got {}", size);
  require(options.hosts.empty() || static_cast<int>(options.hosts.size()) == size,
          "{} host names for {} ranks", options.hosts.size(), size);
  auto family = std::make_shared<Family>();
  family->deadline = options.deadline;
  family->hosts = options.hosts.empty()
                      ? std::vector<std::string>(static_cast<size_t>(size), this_host_name())
                      : options.hosts;
  auto group = std::make_shared<Group>();
  group->family = family;
  group->world_ranks.resize(static_cast<size_t>(size));
  std::iota(group->world_ranks.begin(), group->world_ranks.end(), 0);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < size; ++r) all.push_back(std::make_unique<LocalCommunicator>(group, r));
  return all;
}

}  // namespace rondo
