#include "runtime/comm/shared/shared_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/engine.h"
#include "runtime/comm/shared/work.h"
#include "runtime/comm/shared/world.h"
#include "runtime/comm/topology.h"
#include "runtime/device/device.h"

namespace rondo {
namespace {

// Members of a communicator among themselves, over a gather among all of its ranks: all must take part, as
// members of one set or another.
class CommunicatorBootstrap final : public Bootstrap {
 public:
  CommunicatorBootstrap(Communicator& comm, std::vector<int> members)
      : comm_(comm), members_(std::move(members)) {
    rank_ = static_cast<int>(std::find(members_.begin(), members_.end(), comm.rank()) - members_.begin());
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const auto bytes = static_cast<int64_t>(mine.size());
    everybody_.resize(mine.size() * static_cast<size_t>(comm_.size()));
    comm_
        .all_gather(ConstSpan{mine.data(), bytes, DType::kU8},
                    Span{everybody_.data(), bytes * comm_.size(), DType::kU8})
        .wait();
    for (size_t m = 0; m < members_.size(); ++m) {
      const std::byte* from = everybody_.data() + static_cast<size_t>(members_[m]) * mine.size();
      std::memcpy(all.data() + m * mine.size(), from, mine.size());
    }
  }

 private:
  Communicator& comm_;
  std::vector<int> members_;
  int rank_ = 0;
  std::vector<std::byte> everybody_;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(std::shared_ptr<SharedEngine> engine, std::unique_ptr<SharedGroup> group,
                     Topology topology, std::chrono::milliseconds deadline)
      : engine_(std::move(engine)),
        group_(std::move(group)),
        topology_(std::move(topology)),
        deadline_(deadline) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const Topology& topology() const override { return topology_; }
  std::string name() const override {
    const std::string& why = engine_->world()->why_windows();
    return fmt::format("shared memory of one host{}{}", engine_->has_thread() ? ", progress thread" : "",
                       why.empty() ? "" : fmt::format(" (an MPI window: {})", why));
  }
  Buffer allocate(int64_t bytes) override {
    require(bytes >= 0, "cannot allocate {} bytes: the size is negative", bytes);
    if (size() == 1) return engine_->device().allocate(bytes);
    CommunicatorBootstrap everybody(*this, all_ranks(size()));
    return group_->allocate(everybody, bytes);
  }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    check_all_reduce(in, out, op, options);
    const Signature signature = make_reduction(CollectiveKind::kAllReduce, out, op, options);
    return start(request(Transfer::kAllReduce, signature, in, out, options));
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    check_all_reduce_group(pairs, op, options);
    const Signature signature = make_group_signature(pairs, op, options);
    const Span nothing{nullptr, 0, signature.dtype};
    SharedRequest wish = request(Transfer::kAllReduce, signature, nothing, nothing, options);
    wish.pairs = pairs;
    return start(wish);
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    check_reduce_scatter(in, out, counts, op, rank(), size(), options);
    Signature signature = make_reduction(CollectiveKind::kReduceScatter, in, op, options);
    signature.set_counts(counts);
    SharedRequest wish = request(Transfer::kReduceScatter, signature, in, out, options);
    wish.call.in_counts = counts;
    return start(wish);
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    check_broadcast(buffer, root, size());
    Signature signature = make_signature(CollectiveKind::kBroadcast, buffer, options);
    signature.root = root;
    return start(request(Transfer::kBroadcast, signature, buffer, buffer, options));
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    check_all_gather_v(in, out, counts, rank(), size());
    return gather(CollectiveKind::kAllGatherV, in, out, counts, options);
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    check_all_to_all_v(in, out, send_counts, receive_counts, rank(), size());
    const Signature signature = make_signature(CollectiveKind::kAllToAllV, {nullptr, 0, in.dtype}, options);
    SharedRequest wish = request(Transfer::kAllToAll, signature, in, out, options);
    wish.call.in_counts = send_counts;
    wish.call.out_counts = receive_counts;
    return start(wish);
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    check_gather_v(in, out, counts, root, rank(), size());
    Signature signature = make_signature(CollectiveKind::kGatherV, in, options);
    signature.root = root;
    signature.set_counts(counts);
    SharedRequest wish = request(Transfer::kGather, signature, in, out, options);
    wish.call.out_counts = counts;
    return start(wish);
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    check_scatter_v(in, out, counts, root, rank(), size());
    Signature signature = make_signature(CollectiveKind::kScatterV, out, options);
    signature.root = root;
    signature.set_counts(counts);
    SharedRequest wish = request(Transfer::kScatter, signature, in, out, options);
    wish.call.in_counts = counts;
    return start(wish);
  }
  Work barrier(const CollectiveOptions& options) override {
    return start(
        request(Transfer::kBarrier, make_signature(CollectiveKind::kBarrier, {}, options), {}, {}, options));
  }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void progress() override { engine_->drive_once(); }
  void publish_failure(std::string_view reason) noexcept override { engine_->publish(reason); }

 private:
  SharedRequest request(Transfer transfer, const Signature& signature, ConstSpan in, Span out,
                        const CollectiveOptions& options) const {
    SharedRequest wish;
    wish.call.transfer = transfer;
    wish.call.signature = signature;
    wish.call.in = in;
    wish.call.out = out;
    wish.call.root = signature.root;
    wish.call.reduction = {.dtype = signature.dtype,
                           .op = signature.op,
                           .prescale = signature.prescale,
                           .postscale = signature.postscale,
                           .divisor = signature.op == ReduceOp::kAverage ? size() : 1};
    wish.after = options.after;
    wish.deadline = options.deadline.count() > 0 ? options.deadline : deadline_;
    return wish;
  }
  Work gather(CollectiveKind kind, ConstSpan in, Span out, std::span<const int64_t> counts,
              const CollectiveOptions& options) {
    Signature signature = make_signature(kind, out, options);
    signature.set_counts(counts);
    SharedRequest wish = request(Transfer::kAllGather, signature, in, out, options);
    wish.call.out_counts = counts;
    return start(wish);
  }
  Work start(SharedRequest& wish) {
    return engine_->with_lock([&] {
      engine_->raise_failure();
      if (idle_.empty()) {
        idle_.reserve(works_.size() + 1);
        works_.push_back(std::make_unique<SharedWork>(*engine_, *group_, topology_, idle_));
        idle_.push_back(works_.back().get());
      }
      SharedWork& work = *idle_.back();
      idle_.pop_back();
      wish.call.signature.sequence = sequence_++;
      work.start(wish);
      engine_->add(work);
      return Work(&work);
    });
  }
  Work start(SharedRequest&& wish) { return start(wish); }

  std::shared_ptr<SharedEngine> engine_;
  std::unique_ptr<SharedGroup> group_;
  Topology topology_;
  std::chrono::milliseconds deadline_;
  int64_t sequence_ = 0;
  std::vector<std::unique_ptr<SharedWork>> works_;
  std::vector<SharedWork*> idle_;
};

std::unique_ptr<Communicator> SharedCommunicator::split(int color, int key) {
  struct Entry {
    int32_t color, key;
  };
  const auto ranks = static_cast<size_t>(size());
  // Ranks without a color are a set of their own, which nobody uses: every rank then takes part in the making
  // of one set, and all of them meet equally often.
  const Entry mine{std::max(color, -1), color < 0 ? 0 : key};
  std::vector<Entry> entries(ranks);
  const std::vector<int64_t> counts(ranks, sizeof(Entry));
  gather(CollectiveKind::kSplit, {&mine, sizeof(Entry), DType::kU8},
         {entries.data(), static_cast<int64_t>(ranks * sizeof(Entry)), DType::kU8}, counts, {})
      .wait();
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (entries[static_cast<size_t>(r)].color == mine.color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return entries[static_cast<size_t>(a)].key < entries[static_cast<size_t>(b)].key;
  });
  std::vector<int> world_ranks;
  for (const int r : members) world_ranks.push_back(group_->world_ranks()[static_cast<size_t>(r)]);
  CommunicatorBootstrap bootstrap(*this, members);
  auto group = std::make_unique<SharedGroup>(engine_->world(), bootstrap, std::move(world_ranks));
  if (color < 0) return nullptr;
  const std::vector<std::string> hosts(members.size(), topology_.host_names[0]);
  Topology topology = make_topology(hosts, bootstrap.rank());
  return std::make_unique<SharedCommunicator>(engine_, std::move(group), std::move(topology), deadline_);
}

}  // namespace

std::unique_ptr<Communicator> make_shared_communicator(Bootstrap& ranks, const Topology& topology,
                                                       Device& device, const SharedOptions& options,
                                                       std::shared_ptr<void> keep) {
  RONDO_CHECK(topology.hosts() == 1 && topology.local_size == ranks.size());
  require(options.deadline.count() > 0, "the deadline must be positive, got {} ms", options.deadline.count());
  SharedWorldOptions world_options;
  world_options.passing = options.passing;
  world_options.letter_bytes = options.letter_bytes;
  world_options.windows = options.windows;
  for (int r = 0; r < ranks.size(); ++r) world_options.names.push_back(rank_name(topology, r));
  auto world = SharedWorld::join(ranks, world_options);
  auto group = std::make_unique<SharedGroup>(world, ranks, all_ranks(ranks.size()));
  auto engine =
      std::make_shared<SharedEngine>(std::move(world), device, options.progress_thread, std::move(keep));
  return std::make_unique<SharedCommunicator>(std::move(engine), std::move(group), topology,
                                              options.deadline);
}

}  // namespace rondo
