// What drives the collectives of a world that shares memory, and keeps its failure.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rondo {

class Device;
class SharedWork;
class SharedWorld;

// Shared by a world's communicator and all that were split from it. Collectives in flight advance together,
// whenever a caller waits, polls or calls progress(), and on a progress thread where there is one. The
// world's watchdog looks at deadlines, also of collectives that nobody waits for.
class SharedEngine {
 public:
  // `keep` lives as long as the engine.
  SharedEngine(std::shared_ptr<SharedWorld> world, Device& device, bool progress_thread,
               std::shared_ptr<void> keep);
  ~SharedEngine();
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  const std::shared_ptr<SharedWorld>& world() const { return world_; }
  Device& device() const { return device_; }
  bool has_thread() const { return thread_.joinable(); }

  // Held around every access to a collective that is in flight.
  std::mutex& lock() { return mutex_; }

  // These take the lock themselves.
  void drive(SharedWork& work);  // until it is over
  void drive_once();
  void publish(std::string_view reason) noexcept;
  template <class Function>
  auto with_lock(const Function& function) {
    const Caller caller(*this);
    const std::lock_guard guard(mutex_);
    return function();
  }

  // These want it held.
  void add(SharedWork& work);
  void raise_failure() const;  // throws PeerError after a failure
  const std::string& failure() const { return failure_; }

 private:
  // Announces a calling thread to the progress thread, which then leaves the lock to it.
  class Caller {
   public:
    explicit Caller(SharedEngine& engine) : engine_(engine) {
      if (engine_.has_thread()) engine_.callers_.fetch_add(1);
    }
    ~Caller() {
      if (engine_.has_thread() && engine_.callers_.fetch_sub(1) == 1) engine_.wake_.notify_one();
    }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    SharedEngine& engine_;
  };

  bool poll();
  void check_deadlines();
  void end_all(const std::string& text);
  void watch();
  bool overdue() const;
  void run_thread();

  std::shared_ptr<void> keep_;
  std::shared_ptr<SharedWorld> world_;
  Device& device_;
  std::mutex mutex_;
  std::vector<SharedWork*> active_;
  std::string failure_;
  std::atomic<bool> check_due_{false};  // whoever polls next looks at the deadlines

  std::thread thread_;
  std::condition_variable wake_;
  std::atomic<int> callers_{0};  // that want the lock or drive; the progress thread stands back for them
  bool stop_ = false;
};

}  // namespace rondo
