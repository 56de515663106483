// What drives the collectives of a world over MPI and keeps its failure.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/comm/cost_model.h"
#include "runtime/comm/host/group.h"
#include "runtime/comm/mpi/session.h"

namespace rondo {

class HostCollective;
class Device;
class Notes;
class SharedWorld;

struct EngineOptions {
  bool progress_thread = false;
  CostModel costs = {};                 // rank 0's count
  std::vector<std::string> hosts = {};  // of the ranks, where they are not the session's
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
};

// Shared by a world's communicator and all that were split from it. Collectives in flight advance together,
// whenever a caller waits, polls or calls progress(), and on a progress thread where there is one. All MPI
// calls happen under the session's lock.
//
// A watchdog thread that takes no part in collectives lets the ranks show signs of life, looks at deadlines,
// and answers for a rank that is busy elsewhere (see notes.h).
//
// A failure (of the transport, a missed deadline, or one that a rank published) ends the whole world: it is
// sent to all ranks on a communicator of its own, where each rank keeps a receive posted.
class HostEngine {
 public:
  // Collective over MPI_COMM_WORLD.
  HostEngine(std::shared_ptr<MpiSession> session, Device& device, const EngineOptions& options);
  ~HostEngine();
  HostEngine(const HostEngine&) = delete;
  HostEngine& operator=(const HostEngine&) = delete;

  std::mutex& lock() { return session_->lock(); }
  Device& device() { return device_; }
  bool has_thread() const { return thread_.joinable(); }
  MpiSession& session() { return *session_; }
  const std::shared_ptr<MpiSession>& shared_session() const { return session_; }
  HostGroup world_group() const;
  const CostModel& costs() const { return costs_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // by world rank
  std::vector<int> local_ranks() const;  // by world rank: its position among the ranks of its host
  // What the ranks of this host share beside MPI; null: nothing.
  const std::shared_ptr<SharedWorld>& shared_world() const { return shared_world_; }
  void set_shared_world(std::shared_ptr<SharedWorld> world) { shared_world_ = std::move(world); }

  // These take the lock themselves.
  void drive(HostCollective& collective);  // until it is over
  void drive_once();
  void publish(std::string_view reason) noexcept;
  template <class Function>
  auto with_lock(const Function& function) {
    const Caller caller(*this);
    const std::lock_guard guard(lock());
    return function();
  }

  // These want it held.
  void add(HostCollective& collective);
  bool poll();
  void raise_failure() const;  // throws PeerError after a failure
  const std::string& failure() const { return failure_; }
  int next_context() const { return next_context_; }
  void use_context(int context);  // throws InternalError when the tags are used up

 private:
  using Message = std::array<char, 1024>;

  // Announces a calling thread to the progress thread, which then leaves the lock to it.
  class Caller {
   public:
    explicit Caller(HostEngine& engine) : engine_(engine) { engine_.callers_.fetch_add(1); }
    ~Caller() {
      if (engine_.callers_.fetch_sub(1) == 1 && engine_.has_thread()) engine_.wake_.notify_one();
    }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    HostEngine& engine_;
  };

  void fail(const std::string& own_reason);
  void tell(std::string text);
  void end_all(std::string text);
  void send_failure() noexcept;
  void check_peers_and_deadlines();
  void check_deadlines(std::chrono::steady_clock::time_point now);
  void run_thread();
  void watch();

  std::shared_ptr<MpiSession> session_;
  Device& device_;
  CostModel costs_;
  std::vector<std::string> hosts_;
  Topology topology_;  // of the world
  std::shared_ptr<SharedWorld> shared_world_;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm control_ = MPI_COMM_NULL;
  int last_context_ = 0;
  int next_context_ = 1;  // 0 is the world's
  bool crowded_ = false;  // more ranks on this host than cores
  std::vector<HostCollective*> active_;
  std::string failure_;
  uint64_t polls_ = 0;
  bool check_due_ = false;
  Message inbox_{};
  Message outbox_{};
  MPI_Request inbox_request_ = MPI_REQUEST_NULL;
  std::unique_ptr<Notes> notes_;                       // null in a world of one
  std::chrono::steady_clock::time_point asked_until_;  // for answers about an overdue collective

  std::thread thread_;
  std::condition_variable wake_;
  std::thread watchdog_;
  std::condition_variable watch_wake_;
  std::atomic<int> callers_{
      0};  // threads that want the lock or drive; the progress thread stands back for them
  bool stop_ = false;
};

}  // namespace rondo
