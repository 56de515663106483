#include "runtime/comm/local/local_communicator.h"

#include <fmt/core.h>

#include <numeric>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/round.h"
#include "runtime/comm/signature.h"
#include "runtime/comm/topology.h"
#include "runtime/device/cpu/cpu_device.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;
using local::Call;
using local::Family;
using local::Group;
using local::Round;

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
      : group_(std::move(group)), rank_(rank), topology_(group_->topology(rank)) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const Topology& topology() const override { return topology_; }
  std::string name() const override { return "threads"; }
  Buffer allocate(int64_t bytes) override { return family().device->allocate(bytes); }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    check_all_reduce(in, out, op, options);
    return start(
        {.signature = make_reduction(CollectiveKind::kAllReduce, out, op, options), .in = in, .out = out},
        options);
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    check_all_reduce_group(pairs, op, options);
    return start({.signature = make_group_signature(pairs, op, options), .pairs = pairs}, options);
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    check_reduce_scatter(in, out, counts, op, rank_, size(), options);
    Signature call = make_reduction(CollectiveKind::kReduceScatter, in, op, options);
    call.set_counts(counts);
    return start({.signature = call, .in = in, .out = out, .counts = counts}, options);
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    check_broadcast(buffer, root, size());
    Signature call = make_signature(CollectiveKind::kBroadcast, buffer, options);
    call.root = root;
    return start({.signature = call, .in = buffer, .out = buffer}, options);
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    check_all_gather_v(in, out, counts, rank_, size());
    Signature call = make_signature(CollectiveKind::kAllGatherV, out, options);
    call.set_counts(counts);
    return start({.signature = call, .in = in, .out = out, .counts = counts}, options);
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    check_all_to_all_v(in, out, send_counts, receive_counts, rank_, size());
    return start({.signature = make_signature(CollectiveKind::kAllToAllV, {nullptr, 0, in.dtype}, options),
                  .in = in,
                  .out = out,
                  .counts = send_counts,
                  .receive_counts = receive_counts},
                 options);
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    check_gather_v(in, out, counts, root, rank_, size());
    Signature call = make_signature(CollectiveKind::kGatherV, in, options);
    call.root = root;
    call.set_counts(counts);
    return start({.signature = call, .in = in, .out = out, .counts = counts}, options);
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    check_scatter_v(in, out, counts, root, rank_, size());
    Signature call = make_signature(CollectiveKind::kScatterV, out, options);
    call.root = root;
    call.set_counts(counts);
    return start({.signature = call, .in = in, .out = out, .counts = counts}, options);
  }
  Work barrier(const CollectiveOptions& options) override {
    return start({.signature = make_signature(CollectiveKind::kBarrier, {}, options)}, options);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    LocalWork& work =
        post({.signature = make_signature(CollectiveKind::kSplit, {}, {}), .color = color, .key = key}, {});
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

  Work start(const Call& call, const CollectiveOptions& options) { return Work(&post(call, options)); }
  LocalWork& post(Call call, const CollectiveOptions& options);

  std::shared_ptr<Group> group_;
  int rank_;
  Topology topology_;
  int64_t sequence_ = 0;
  std::vector<std::unique_ptr<LocalWork>> works_;
  std::vector<LocalWork*> idle_;
};

LocalWork& LocalCommunicator::post(Call call, const CollectiveOptions& options) {
  std::unique_lock lock(family().mutex);
  if (!family().failure.empty()) throw PeerError(family().failure);
  if (idle_.empty()) {
    works_.push_back(std::make_unique<LocalWork>(*this));
    idle_.push_back(works_.back().get());
  }
  LocalWork& work = *idle_.back();
  idle_.pop_back();
  call.signature.sequence = sequence_++;
  Round& round = group_->round(call.signature.sequence);
  round.posts[static_cast<size_t>(rank_)].take(call);
  work.round_ = &round;
  work.limit_ = options.deadline.count() > 0 ? options.deadline : family().deadline;
  work.deadline_ = Clock::now() + work.limit_;
  if (++round.arrived == size()) {
    lock.unlock();
    run_round(*group_, round);
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
    const Signature& call = round_->posts[static_cast<size_t>(comm_.rank_)].call.signature;
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
  family->device = make_cpu_device(1);
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
