// One ncclComm_t with what must happen in the right order around it: calls, the watch over them, the end.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/signature.h"
#include "runtime/device/device.h"

namespace rondo::nccl {

using Clock = std::chrono::steady_clock;

// A collective on its way.
struct Flight {
  std::unique_ptr<Event> done;
  Signature call;
  Clock::time_point deadline;
  std::chrono::milliseconds limit{0};
  std::string mismatch;  // of the ranks' calls: nothing was launched
  bool held = false;     // by a Work
  bool flying = false;   // launched, and not seen to be done
};

struct LinkOptions {
  int rank = 0, size = 1;
  std::string own_name;  // "rank 3 (node7)"
  std::chrono::milliseconds connect_deadline;
};

// The communicator's thread queues; a watchdog of its own looks for errors. Every function may be called by
// the communicator's thread only, those of it that say so by any.
class Link {
 public:
  // Meets the other ranks. Throws PeerError.
  Link(const ncclUniqueId& id, Device& device, const LinkOptions& options);
  ~Link();  // waits for what is queued, for a while, then ends the communicator in order
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Throws PeerError when it has failed; any thread.
  void check();
  // Runs `call` (one NCCL call, or a group), waits until NCCL has taken it, and throws PeerError where it
  // failed.
  void run(const char* name, const std::function<ncclResult_t(ncclComm_t)>& call);

  // Queues captured work with collectives in it, by calling `launch`; throws PeerError when the link failed.
  void launch(const std::function<void()>& launch);

  // take() gives a flight whose event is to be recorded, in a capture or not; launched() puts it under watch,
  // in the stream's order; let_go() says that nobody asks for it any more.
  Flight& take(bool captured);
  void launched(Flight& flight);
  void let_go(Flight& flight);
  // Throws PeerError when the link has failed, else tells whether the flight is done.
  bool done(Flight& flight);
  // As done(), and fails the link when the flight is overdue.
  bool done_in_time(Flight& flight);

  // Memory for collectives in place. Any thread may drop the buffer.
  Buffer allocate(int64_t bytes, Stream& stream);

  // The first reason stays. What runs is aborted, by a thread that the caller does not wait for: it ends when
  // the last captured work that holds collectives is gone, which may be the caller's. Any thread.
  void fail(const std::string& reason) noexcept;

 private:
  struct Memory;
  // What memory needs after the link is gone.
  struct Shared {
    std::mutex mutex;           // of everything here
    ncclComm_t comm = nullptr;  // null from an abort on
    bool aborting = false;
    std::condition_variable aborted;
    void await_abort(std::unique_lock<std::mutex>& lock);
  };

  void watch();
  ncclResult_t settle(std::unique_lock<std::mutex>& lock, ncclResult_t result, Clock::time_point deadline);
  void fail_locked(const std::string& reason) noexcept;
  void abort_locked() noexcept;
  std::string overdue(const Flight& flight) const;
  void retire_locked();
  void end_in_order();

  Device& device_;
  int device_index_;
  std::string own_name_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::condition_variable stopped_;
  bool stop_ = false;
  std::string failure_;
  std::vector<std::unique_ptr<Flight>> flights_;  // all there are
  std::vector<Flight*> idle_, in_flight_;
  std::vector<std::weak_ptr<Memory>> memory_;
  std::thread watchdog_;
};

}  // namespace rondo::nccl
