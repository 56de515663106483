#include "runtime/comm/host/host_communicator.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/host/collective.h"
#include "runtime/comm/host/engine.h"
#include "runtime/comm/host/hierarchy.h"
#include "runtime/comm/host/shared.h"
#include "runtime/comm/shared/world.h"
#include "runtime/comm/topology.h"
#include "runtime/device/device.h"

namespace rondo {
namespace {

// Over a network short chunks keep the link full while a rank sleeps between tests; inside a host longer ones
// save messages, and still fit the second-level cache with the window of them.
constexpr int64_t kNetworkChunk = 32 << 10;
constexpr int64_t kHostChunk = 256 << 10;

// Collective among the group's ranks. Null, on all of them, where there is none. `context` is unused so far.
std::unique_ptr<Hierarchy> share_hosts(const std::shared_ptr<HostEngine>& engine, const HostGroup& group,
                                       const HostOptions& options, int context);
// The same for ranks that all lie on one host of several.
std::unique_ptr<SharedGroup> share_set(const std::shared_ptr<HostEngine>& engine, const HostGroup& group,
                                       const HostOptions& options, int context);

class HostCommunicator final : public Communicator {
 public:
  // `set`: all ranks share memory. `remark`: for the name.
  HostCommunicator(std::shared_ptr<HostEngine> engine, HostGroup group, const HostOptions& options,
                   std::unique_ptr<Hierarchy> hierarchy = nullptr, std::unique_ptr<SharedGroup> set = nullptr,
                   const std::string& remark = {})
      : engine_(std::move(engine)),
        group_(std::move(group)),
        options_(options),
        hierarchy_(std::move(hierarchy)),
        set_(std::move(set)),
        remark_(remark) {
    if (options_.chunk_bytes == 0) {
      options_.chunk_bytes = group_.topology.hosts() > 1 ? kNetworkChunk : kHostChunk;
    }
  }
  ~HostCommunicator() override {
    const std::lock_guard guard(engine_->lock());
    for (auto& state : states_) {
      if (state->memory_lost()) engine_->session().keep(std::shared_ptr<void>(std::move(state)));
    }
  }

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  const Topology& topology() const override { return group_.topology; }
  std::string name() const override {
    if (set_ != nullptr)
      return fmt::format("shared memory of one host{}", engine_->has_thread() ? ", progress thread" : "");
    return fmt::format("host ring over MPI{}{}{}", hierarchy_ != nullptr ? ", shared memory in hosts" : "",
                       engine_->has_thread() ? ", progress thread" : "", remark_);
  }
  Buffer allocate(int64_t bytes) override;

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    check_all_reduce(in, out, op, options);
    HostCall call = make_call(in, out, options);
    call.signature = make_reduction(CollectiveKind::kAllReduce, out, op, options);
    return start(call);
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    check_all_reduce_group(pairs, op, options);
    HostCall call = make_call({}, {}, options);
    call.signature = make_group_signature(pairs, op, options);
    call.pairs = pairs;
    return start(call);
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    check_reduce_scatter(in, out, counts, op, rank(), size(), options);
    HostCall call = make_call(in, out, options);
    call.signature = make_reduction(CollectiveKind::kReduceScatter, in, op, options);
    set_counts(call, counts);
    return start(call);
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    check_broadcast(buffer, root, size());
    HostCall call = make_call(buffer, buffer, options);
    call.signature = make_signature(CollectiveKind::kBroadcast, buffer, options);
    call.signature.root = root;
    return start(call);
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    check_all_gather_v(in, out, counts, rank(), size());
    HostCall call = make_call(in, out, options);
    call.signature = make_signature(CollectiveKind::kAllGatherV, out, options);
    set_counts(call, counts);
    return start(call);
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    check_all_to_all_v(in, out, send_counts, receive_counts, rank(), size());
    HostCall call = make_call(in, out, options);
    call.signature = make_signature(CollectiveKind::kAllToAllV, {nullptr, 0, in.dtype}, options);
    call.counts = send_counts;
    call.receive_counts = receive_counts;
    return start(call);
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    check_gather_v(in, out, counts, root, rank(), size());
    HostCall call = make_call(in, out, options);
    call.signature = make_signature(CollectiveKind::kGatherV, in, options);
    call.signature.root = root;
    set_counts(call, counts);
    return start(call);
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    check_scatter_v(in, out, counts, root, rank(), size());
    HostCall call = make_call(in, out, options);
    call.signature = make_signature(CollectiveKind::kScatterV, out, options);
    call.signature.root = root;
    set_counts(call, counts);
    return start(call);
  }
  Work barrier(const CollectiveOptions& options) override {
    HostCall call = make_call({}, {}, options);
    call.signature = make_signature(CollectiveKind::kBarrier, {}, options);
    return start(call);
  }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void progress() override { engine_->drive_once(); }
  void publish_failure(std::string_view reason) noexcept override { engine_->publish(reason); }

 private:
  HostCall make_call(ConstSpan in, Span out, const CollectiveOptions& options) const {
    HostCall call;
    call.in = in;
    call.out = out;
    call.after = options.after;
    call.deadline = options.deadline.count() > 0 ? options.deadline : options_.deadline;
    return call;
  }
  static void set_counts(HostCall& call, std::span<const int64_t> counts) {
    call.counts = counts;
    call.signature.set_counts(counts);
  }
  Work start(HostCall call);
  void wait_for_room();

  std::shared_ptr<HostEngine> engine_;
  HostGroup group_;
  HostOptions options_;
  std::unique_ptr<Hierarchy> hierarchy_;
  std::unique_ptr<SharedGroup> set_;
  std::string remark_;
  int64_t sequence_ = 0;
  std::vector<std::unique_ptr<HostCollective>> states_;
  std::vector<HostCollective*> idle_;
};

void HostCommunicator::wait_for_room() {
  const auto in_flight = [this] {
    const std::lock_guard lock(engine_->lock());
    return std::count_if(states_.begin(), states_.end(),
                         [](const auto& state) { return state->in_flight(); });
  };
  // Nor may the numbers on the way be too far apart.
  const auto too_far = [this] {
    const std::lock_guard lock(engine_->lock());
    return engine_->failure().empty() && sequence_ - hierarchy_->scatter_turns.next() >= Turns::kSpan;
  };
  while (hierarchy_ != nullptr && too_far()) engine_->drive_once();
  if (static_cast<int64_t>(states_.size()) < kMaxInFlight) return;
  while (in_flight() >= kMaxInFlight) engine_->drive_once();
}

Buffer HostCommunicator::allocate(int64_t bytes) {
  if (set_ != nullptr) {
    CommunicatorBootstrap everybody(*this);
    return set_->allocate(everybody, bytes);
  }
  if (hierarchy_ == nullptr) return engine_->device().allocate(bytes);
  CommunicatorBootstrap bootstrap(*hierarchy_->local);
  Buffer buffer;
  std::string reason;
  try {
    buffer = hierarchy_->gather->allocate(bootstrap, bytes);
  } catch (const DeviceError& error) {
    reason = error.what();
  }
  // On all hosts or on none.
  uint8_t failed = reason.empty() ? 0 : 1;
  const Span flag = span_of(std::span(&failed, 1));
  all_reduce(flag, flag, ReduceOp::kMax, {.label = "allocation"}).wait();
  if (failed != 0) {
    throw DeviceError(
        !reason.empty() ? reason : fmt::format("another host has no {} bytes of memory to share", bytes));
  }
  return buffer;
}

Work HostCommunicator::start(HostCall call) {
  wait_for_room();
  return engine_->with_lock([&] {
    engine_->raise_failure();
    if (idle_.empty()) {
      idle_.reserve(states_.size() + 1);
      states_.push_back(std::make_unique<HostCollective>(*engine_, group_, idle_));
      idle_.push_back(states_.back().get());
    }
    HostCollective& state = *idle_.back();
    idle_.pop_back();
    call.signature.sequence = sequence_++;
    state.start(call, options_.chunk_bytes, engine_->costs(), hierarchy_.get(), set_.get());
    engine_->add(state);
    return Work(&state);
  });
}

std::unique_ptr<Communicator> HostCommunicator::split(int color, int key) {
  struct Entry {
    int32_t color, key, next_context, unused;
  };
  const auto ranks = static_cast<size_t>(size());
  std::vector<Entry> entries(ranks);
  const std::vector<int64_t> counts(ranks, sizeof(Entry));
  const Entry mine{color, key, engine_->with_lock([&] { return engine_->next_context(); }), 0};
  HostCall call = make_call({&mine, sizeof(Entry), DType::kU8},
                            {entries.data(), static_cast<int64_t>(ranks * sizeof(Entry)), DType::kU8}, {});
  call.signature = make_signature(CollectiveKind::kSplit, call.out, {});
  set_counts(call, counts);
  start(call).wait();
  // A number that no member of this group has seen. All colors share it: their ranks are disjoint.
  int context = 0;
  std::vector<int> order;
  for (int r = 0; r < size(); ++r) {
    context = std::max(context, entries[static_cast<size_t>(r)].next_context);
    if (entries[static_cast<size_t>(r)].color == color) order.push_back(r);
  }
  // The next one is for the making of a hierarchy.
  engine_->with_lock([&] { engine_->use_context(context + 1); });
  if (color < 0) return nullptr;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return entries[static_cast<size_t>(a)].key < entries[static_cast<size_t>(b)].key;
  });
  HostGroup child;
  child.mpi = group_.mpi;
  child.context = context;
  std::vector<std::string> hosts;
  for (const int r : order) {
    if (r == rank()) child.rank = child.size();
    const int world_rank = group_.world_ranks[static_cast<size_t>(r)];
    child.world_ranks.push_back(world_rank);
    hosts.push_back(engine_->hosts()[static_cast<size_t>(world_rank)]);
  }
  child.topology = make_topology(hosts, child.rank);
  child.most_on_a_host = most_ranks_on_a_host(child.topology);
  // At most one of the two.
  auto set = share_set(engine_, child, options_, context + 1);
  auto hierarchy = share_hosts(engine_, child, options_, context + 1);
  return std::make_unique<HostCommunicator>(engine_, std::move(child), options_, std::move(hierarchy),
                                            std::move(set));
}

// The same ranks over messages, while shared memory is made.
std::unique_ptr<Communicator> scaffold(const std::shared_ptr<HostEngine>& engine, HostGroup group,
                                       HostOptions options, int context) {
  group.context = context;
  options.shared_memory = false;
  return std::make_unique<HostCommunicator>(engine, std::move(group), options);
}

std::unique_ptr<Hierarchy> share_hosts(const std::shared_ptr<HostEngine>& engine, const HostGroup& group,
                                       const HostOptions& options, int context) {
  if (!options.shared_memory || engine->shared_world() == nullptr || !hierarchy_fits(group.topology))
    return nullptr;
  return make_hierarchy(group, *scaffold(engine, group, options, context), engine->shared_world(),
                        engine->local_ranks());
}

std::unique_ptr<SharedGroup> share_set(const std::shared_ptr<HostEngine>& engine, const HostGroup& group,
                                       const HostOptions& options, int context) {
  const bool fits = group.topology.hosts() == 1 && group.size() > 1;
  if (!options.shared_memory || engine->shared_world() == nullptr || !fits) return nullptr;
  const auto flat = scaffold(engine, group, options, context);
  return make_shared_set(group, *flat, engine->shared_world(), engine->local_ranks());
}

int allowed_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

bool wants_progress_thread(const Topology& topology, int allowed, int online, int compute_threads) {
  if (topology.hosts() > 1) return true;
  // A mask that leaves every rank cores of its own was set by the launcher for this rank; a wider one is
  // shared.
  const int sharing = allowed * topology.local_size <= online ? 1 : topology.local_size;
  return allowed > sharing * compute_threads;
}

std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<MpiSession> session, Device& device,
                                                     const HostOptions& options) {
  require(session != nullptr, "a communicator over MPI needs a session");
  require(options.deadline.count() > 0, "the deadline must be positive, got {} ms", options.deadline.count());
  require(options.heartbeat.count() > 0, "the heartbeat must be positive, got {} ms",
          options.heartbeat.count());
  require(options.chunk_bytes >= 0 && options.chunk_bytes <= INT_MAX,
          "chunk_bytes must lie between 1 and {}, or be 0 for the default; got {}", INT_MAX,
          options.chunk_bytes);
  require(options.hosts.empty() || static_cast<int>(options.hosts.size()) == session->size(),
          "{} host names for {} ranks", options.hosts.size(), session->size());
  require(options.progress != Progress::kThread || session->threads_allowed(),
          "a progress thread was asked for, but this MPI was initialized for one thread only");
  bool thread = options.progress == Progress::kThread;
  if (options.progress == Progress::kAuto) {
    const Topology topology =
        make_topology(options.hosts.empty() ? session->hosts() : options.hosts, session->rank());
    const int online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    thread = session->size() > 1 &&
             wants_progress_thread(topology, allowed_cores(), online, options.compute_threads);
  }
  std::string remark;
  if (options.shared_memory && session->size() > 1) {
    auto comm = share_memory(session, device, options, thread, remark);
    if (comm != nullptr) return comm;
    if (!remark.empty()) remark = fmt::format(" ({})", remark);
  }
  auto engine = std::make_shared<HostEngine>(std::move(session), device,
                                             EngineOptions{.progress_thread = thread,
                                                           .costs = options.costs,
                                                           .hosts = options.hosts,
                                                           .heartbeat = options.heartbeat});
  HostGroup world = engine->world_group();
  std::unique_ptr<Hierarchy> hierarchy;
  if (options.shared_memory && world.topology.hosts() > 1 && world.most_on_a_host > 1) {
    const int context = engine->with_lock([&] {
      const int next = engine->next_context();
      engine->use_context(next + 1);
      return next;
    });
    engine->set_shared_world(
        join_hosts(world, *scaffold(engine, world, options, context), engine->shared_session(),
                   {.passing = options.passing, .letter_bytes = engine->costs().letter_bytes}));
    hierarchy = share_hosts(engine, world, options, context + 1);
  }
  return std::make_unique<HostCommunicator>(std::move(engine), std::move(world), options,
                                            std::move(hierarchy), nullptr, remark);
}

}  // namespace rondo
