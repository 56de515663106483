// The life of MPI in this process: the one piece of global state, owned by one object.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/launcher.h"

namespace rondo {

// Initializes MPI when made and finalizes it when the last holder is gone: communicators hold their session,
// so the order in which a program drops them does not matter.
//
// Thread level. MPI_THREAD_SERIALIZED: a progress thread and the caller's thread both call MPI, one at a
// time, under `lock()`. FUNNELED would tie every collective to the main thread; MULTIPLE would make MPI lock
// inside each call.
//
// Finalizing waits for all ranks. A rank that fails therefore must not finalize: when the session goes in the
// unwinding of an exception, or after abandon(), it does not, and the launcher ends the job as soon as the
// process exits with an error.
class MpiSession {
 public:
  // Start one only under a launcher (launched_by()): alone, MPI_Init forks a helper process and takes half a
  // second. On one host Open MPI's ob1 point-to-point layer is chosen unless the user's OMPI_MCA_pml says
  // otherwise: it starts in a fifth of the time of the default. Throws PeerError when MPI cannot start, or
  // when the launcher started several ranks of which MPI sees only this one. A program that has initialized
  // MPI itself keeps the ownership of it.
  static std::shared_ptr<MpiSession> start(const Launch& launch = launched_by());

  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const { return hosts_; }  // for each rank, the name of its machine
  bool threads_allowed() const { return threads_allowed_; }  // other threads may call MPI, one at a time
  static std::string library();  // "Open MPI v4.1.4"; may be asked without a session

  // Held around every call of MPI.
  std::mutex& lock() { return lock_; }

  // Takes what MPI may still write to, and lets it go when MPI has ended. Needs the lock.
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

  // The process is about to exit with an error: do not wait for other ranks in the end.
  void abandon() noexcept { abandoned_ = true; }

  // Ends all ranks of the job now, without unwinding.
  [[noreturn]] void abort(int exit_code) noexcept;

 private:
  explicit MpiSession(const Launch& launch);

  bool owner_ = false;
  bool abandoned_ = false;
  bool threads_allowed_ = false;
  int exceptions_at_start_ = 0;
  int rank_ = 0;
  std::vector<std::string> hosts_;
  std::mutex lock_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace rondo
