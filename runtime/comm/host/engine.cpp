#include "runtime/comm/host/engine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/comm/host/backoff.h"
#include "runtime/comm/host/collective.h"
#include "runtime/comm/host/notes.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/shared/world.h"
#include "runtime/comm/topology.h"

namespace rondo {
namespace {

constexpr int kFailureTag = 1;

MPI_Comm duplicate_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

int largest_tag(MPI_Comm comm) {
  int* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&value), &found), "MPI_Comm_get_attr");
  return found != 0 ? *value : 32767;  // what the standard guarantees
}

// What all ranks take from rank 0.
struct Common {
  CostModel costs;
  int64_t nonce = 0;
};

Common agree_on_common(MPI_Comm comm, const CostModel& costs) {
  static_assert(std::is_trivially_copyable_v<Common>);
  Common common{costs, std::chrono::steady_clock::now().time_since_epoch().count()};
  check_mpi(MPI_Bcast(&common, sizeof(common), MPI_BYTE, 0, comm), "MPI_Bcast of the cost model");
  return common;
}

// Opens all connections now: a rank whose network is gone could not open one to say so, and some transports
// end the process when they cannot.
void connect_all(MPI_Comm comm, int size) {
  constexpr int kMostRanks = 256;
  if (size > kMostRanks) return;
  std::vector<char> bytes(2 * static_cast<size_t>(size), 0);
  check_mpi(MPI_Alltoall(bytes.data(), 1, MPI_CHAR, bytes.data() + size, 1, MPI_CHAR, comm),
            "MPI_Alltoall between all ranks");
}

}  // namespace

HostEngine::HostEngine(std::shared_ptr<MpiSession> session, Device& device, const EngineOptions& options)
    : session_(std::move(session)),
      device_(device),
      costs_(options.costs),
      hosts_(options.hosts.empty() ? session_->hosts() : options.hosts),
      topology_(make_topology(hosts_, session_->rank())) {
  const std::lock_guard guard(lock());
  data_ = duplicate_world();
  control_ = duplicate_world();
  const Common common = agree_on_common(control_, costs_);
  costs_ = common.costs;
  if (topology_.hosts() > 1) connect_all(control_, session_->size());
  // One more is left for notes: one that comes late meets no receive of another kind.
  last_context_ = (largest_tag(data_) >> (kSequenceBits + 1)) - 2;
  check_mpi(MPI_Irecv(inbox_.data(), static_cast<int>(inbox_.size()), MPI_CHAR, MPI_ANY_SOURCE, kFailureTag,
                      control_, &inbox_request_),
            "MPI_Irecv");
  active_.reserve(kMaxInFlight);
  const int on_this_host = make_topology(session_->hosts(), session_->rank()).local_size;
  crowded_ = on_this_host > sysconf(_SC_NPROCESSORS_ONLN);
  if (session_->size() > 1) {
    notes_ = std::make_unique<Notes>(control_, make_tag(last_context_ + 1, 0, 0), common.nonce, topology_,
                                     session_->rank(), options.heartbeat);
    if (session_->threads_allowed()) watchdog_ = std::thread([this] { watch(); });
  }
  if (options.progress_thread && session_->threads_allowed()) thread_ = std::thread([this] { run_thread(); });
}

HostEngine::~HostEngine() {
  bool failed = false;
  {
    const std::lock_guard guard(lock());
    stop_ = true;
    failed = !failure_.empty() || !active_.empty();
    end_all("its communicator is gone");
  }
  wake_.notify_one();
  watch_wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (watchdog_.joinable()) watchdog_.join();
  const std::lock_guard guard(lock());
  abandon_receive(inbox_request_);
  if (notes_ != nullptr && !notes_->leave()) session_->keep(std::shared_ptr<void>(std::move(notes_)));
  // After a failure messages may still be under way. MPI would give a freed communicator's number to the next
  // one, and their messages with it; so the two are left alone.
  if (failed) return;
  MPI_Comm_free(&data_);
  // A neighbour that has not left yet may still send a note.
  if (session_->size() == 1) MPI_Comm_free(&control_);
}

HostGroup HostEngine::world_group() const {
  HostGroup group;
  group.mpi = data_;
  group.world_ranks.resize(static_cast<size_t>(session_->size()));
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  group.rank = session_->rank();
  group.topology = topology_;
  group.most_on_a_host = most_ranks_on_a_host(group.topology);
  return group;
}

std::vector<int> HostEngine::local_ranks() const {
  std::vector<int> positions;
  std::vector<int> seen(static_cast<size_t>(topology_.hosts()), 0);
  for (const int host : topology_.host_of) positions.push_back(seen[static_cast<size_t>(host)]++);
  return positions;
}

void HostEngine::use_context(int context) {
  if (context > last_context_) {
    raise<InternalError>("this MPI's tags allow {} process sets over the life of a world, and all are used",
                         last_context_ + 1);
  }
  next_context_ = context + 1;
}

void HostEngine::add(HostCollective& collective) {
  active_.push_back(&collective);
  if (notes_ != nullptr) notes_->called(collective.group().context, collective.sequence());
  poll();
  if (has_thread() && !collective.over()) wake_.notify_one();
}

bool HostEngine::poll() {
  constexpr uint64_t kPollsBetweenChecks = 64;
  bool moved = false;
  try {
    if (++polls_ % kPollsBetweenChecks == 0 || check_due_) check_peers_and_deadlines();
    for (HostCollective* collective : active_) moved = collective->advance() || moved;
  } catch (const PeerError& error) {
    fail(error.what());
  }
  std::erase_if(active_, [](const HostCollective* collective) { return collective->over(); });
  return moved;
}

void HostEngine::check_peers_and_deadlines() {
  check_due_ = false;
  if (!failure_.empty()) return;
  int arrived = 0;
  check_mpi(MPI_Test(&inbox_request_, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
  if (arrived != 0) {
    inbox_.back() = '\0';
    end_all(inbox_.data());
    return;
  }
  if (shared_world_ != nullptr && shared_world_->failed()) {
    tell(shared_world_->failure());
    return;
  }
  const auto now = HostCollective::Clock::now();
  if (notes_ != nullptr) notes_->check(now);
  check_deadlines(now);
}

void HostEngine::check_deadlines(HostCollective::Clock::time_point now) {
  // A rank may be in the middle of a computation, but its watchdog answers within a tenth of a second.
  constexpr auto kPatience = std::chrono::milliseconds(500);
  const auto late = std::find_if(active_.begin(), active_.end(), [now](const HostCollective* collective) {
    return collective->overdue(now);
  });
  if (late == active_.end()) return;
  const HostCollective& collective = **late;
  if (notes_ == nullptr) throw PeerError(collective.overdue_text(nullptr));
  if (!notes_->asking(collective.group().context, collective.sequence())) {
    notes_->ask(collective.group(), collective.sequence());
    asked_until_ = now + kPatience;
  }
  if (notes_->all_answered() || now > asked_until_) throw PeerError(collective.overdue_text(notes_.get()));
}

void HostEngine::raise_failure() const {
  if (!failure_.empty()) throw PeerError(failure_);
}

void HostEngine::fail(const std::string& own_reason) {
  if (!failure_.empty()) return;
  if (shared_world_ != nullptr) shared_world_->publish(own_reason);
  tell(fmt::format("{}: {}", rank_name(topology_, session_->rank()), own_reason));
}

void HostEngine::tell(std::string text) {
  const size_t length = std::min(text.size(), outbox_.size() - 1);
  outbox_.fill('\0');
  std::memcpy(outbox_.data(), text.data(), length);
  send_failure();
  end_all(std::move(text));
}

void HostEngine::end_all(std::string text) {
  if (failure_.empty()) failure_ = std::move(text);
  for (HostCollective* collective : active_) collective->fail();
  active_.clear();
}

void HostEngine::send_failure() noexcept {
  // To everybody at once, for as long as a rank may hold the others up; who does not take it in that time is
  // told by the launcher or by its own deadline.
  constexpr auto kPatience = std::chrono::milliseconds(200);
  try {
    std::vector<MPI_Request> requests(static_cast<size_t>(session_->size()), MPI_REQUEST_NULL);
    for (int peer = 0; peer < session_->size(); ++peer) {
      if (peer == session_->rank()) continue;
      MPI_Isend(outbox_.data(), static_cast<int>(outbox_.size()), MPI_CHAR, peer, kFailureTag, control_,
                &requests[static_cast<size_t>(peer)]);
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    Backoff backoff(true);
    int done = 0;
    while (done == 0 && std::chrono::steady_clock::now() < end) {
      done = 1;
      for (MPI_Request& request : requests) {
        int sent = 0;
        if (MPI_Test(&request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent == 0) done = 0;
      }
      if (done == 0) backoff.pause();
    }
    for (MPI_Request& request : requests) abandon_send(request);
  } catch (...) {
    // Out of memory: the others find out by their deadlines.
  }
}

void HostEngine::publish(std::string_view reason) noexcept {
  const Caller caller(*this);
  try {
    const std::lock_guard guard(lock());
    fail(std::string(reason));
  } catch (...) {
    // Nothing more can be said.
  }
}

void HostEngine::drive_once() {
  const Caller caller(*this);
  const std::lock_guard guard(lock());
  poll();
}

void HostEngine::drive(HostCollective& collective) {
  const Caller caller(*this);
  Backoff backoff(crowded_);
  bool slept = false;
  for (;;) {
    bool moved = false;
    {
      const std::lock_guard guard(lock());
      if (slept) check_due_ = true;  // cheap beside a sleep
      moved = poll();
      if (collective.over()) return;
    }
    slept = false;
    if (moved) {
      backoff.reset();
    } else {
      slept = backoff.pause();
    }
  }
}

void HostEngine::watch() {
  constexpr auto kTick = std::chrono::milliseconds(100);
  std::unique_lock guard(lock());
  while (!stop_) {
    try {
      check_peers_and_deadlines();
    } catch (const PeerError& error) {
      fail(error.what());
    }
    watch_wake_.wait_for(guard, kTick);
  }
}

void HostEngine::run_thread() {
  Backoff backoff(true);
  std::unique_lock guard(lock());
  while (!stop_) {
    if (active_.empty() || callers_.load() > 0) {
      wake_.wait_for(guard, std::chrono::milliseconds(active_.empty() ? 1000 : 1));
      backoff.reset();
      continue;
    }
    const bool moved = poll();
    guard.unlock();
    if (moved) {
      backoff.reset();
      sched_yield();
      guard.lock();
    } else {
      const bool slept = backoff.pause();
      guard.lock();
      if (slept) check_due_ = true;
    }
  }
}

}  // namespace rondo
