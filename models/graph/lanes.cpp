#include "models/graph/lanes.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "models/graph/plan.h"
#include "runtime/base/error.h"
#include "runtime/kernels/backend.h"
#include "runtime/tensor/step_state.h"

namespace rondo {
namespace {

class QueuedLanes final : public Lanes {
 public:
  explicit QueuedLanes(std::span<KernelBackend* const> backends)
      : devices_(devices_of(backends)), begin_(devices_.front()->make_event()) {
    for (size_t d = 1; d < devices_.size(); ++d) {
      lanes_.push_back({.stream = devices_[d]->make_stream(),
                        .end = devices_[d]->make_event(),
                        .state = devices_[d]->allocate(sizeof(StepState))});
    }
  }
  ~QueuedLanes() override { quiet(); }

  void prepare(Plan& plan) override {
    if (!plan.events.empty()) return;
    for (const int device : plan.signals) {
      plan.events.push_back(devices_[static_cast<size_t>(device)]->make_event());
    }
  }
  void run_forward(const Plan& plan, const Execution& on, std::span<void* const> scratch) override {
    run(plan, plan.forward, on, scratch, nullptr);
  }
  void run_backward(const Plan& plan, const Execution& on, std::span<void* const> scratch,
                    GradSink& sink) override {
    run(plan, plan.backward, on, scratch, &sink);
  }

 private:
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> end;
    Buffer state;  // the step's, as kernels of the device read it
  };

  static std::vector<Device*> devices_of(std::span<KernelBackend* const> backends) {
    std::vector<Device*> devices;
    for (const KernelBackend* backend : backends) devices.push_back(&backend->device());
    return devices;
  }

  void run(const Plan& plan, const std::vector<PlanStep>& steps, const Execution& on,
           std::span<void* const> scratch, GradSink* sink) {
    try {
      begin(on);
      for (const PlanStep& step : steps) {
        if (step.device == 0) {
          run_step(plan, step, on);
        } else {
          const auto at = static_cast<size_t>(step.device) - 1;
          const auto* state = on.state == nullptr ? nullptr : lanes_[at].state.as<const StepState>();
          run_step(plan, step, {.stream = *lanes_[at].stream, .scratch = scratch[at], .state = state});
        }
        if (sink == nullptr) continue;
        for (Parameter* parameter : step.ready) sink->ready(*parameter);
      }
      end(on);
    } catch (...) {
      quiet();
      throw;
    }
  }

  void begin(const Execution& on) {
    on.stream.record(*begin_);
    for (Lane& lane : lanes_) {
      lane.stream->wait(*begin_);
      if (on.state != nullptr) lane.stream->copy(lane.state.data(), on.state, sizeof(StepState));
    }
  }

  static void run_step(const Plan& plan, const PlanStep& step, const Execution& on) {
    for (const int signal : step.waits) on.stream.wait(*plan.events[static_cast<size_t>(signal)]);
    step.run(on);
    if (step.signal >= 0) on.stream.record(*plan.events[static_cast<size_t>(step.signal)]);
  }

  void end(const Execution& on) {
    for (Lane& lane : lanes_) {
      lane.stream->record(*lane.end);
      on.stream.wait(*lane.end);
    }
  }

  void quiet() {
    for (Lane& lane : lanes_) {
      try {
        lane.stream->synchronize();
      } catch (const std::exception&) {
        // A failed device touches no memory any more.
      }
    }
  }

  std::vector<Device*> devices_;
  std::unique_ptr<Event> begin_;
  std::vector<Lane> lanes_;  // of device 1, 2, ...
};

// The calling thread is the first device's lane.
class ThreadLanes final : public Lanes {
 public:
  explicit ThreadLanes(std::span<KernelBackend* const> backends) {
    for (size_t d = 1; d < backends.size(); ++d) streams_.push_back(backends[d]->device().make_stream());
    for (size_t d = 1; d < backends.size(); ++d) {
      threads_.emplace_back([this, d] { work(static_cast<int>(d)); });
    }
  }
  ~ThreadLanes() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void prepare(Plan& plan) override {
    if (given_.size() < plan.signals.size()) given_.resize(plan.signals.size(), 0);
  }
  void run_forward(const Plan& plan, const Execution& on, std::span<void* const> scratch) override {
    run(plan.forward, on, scratch, nullptr);
  }
  void run_backward(const Plan& plan, const Execution& on, std::span<void* const> scratch,
                    GradSink& sink) override {
    run(plan.backward, on, scratch, &sink);
  }

 private:
  void run(const std::vector<PlanStep>& steps, const Execution& on, std::span<void* const> scratch,
           GradSink* sink) {
    {
      const std::lock_guard lock(mutex_);
      steps_ = &steps;
      state_ = on.state;
      scratch_ = scratch;
      error_ = nullptr;
      failed_ = false;
      running_ = threads_.size();
      ++pass_;
    }
    changed_.notify_all();
    run_lane(0, on, sink);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void run_lane(int device, const Execution& on, GradSink* sink) {
    try {
      for (const PlanStep& step : *steps_) {
        if (step.device != device) continue;
        if (failed_ || !wait_for(step)) return;
        step.run(on);
        if (step.signal >= 0) give(step.signal);
        if (sink == nullptr) continue;
        for (Parameter* parameter : step.ready) sink->ready(*parameter);
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        failed_ = true;
      }
      changed_.notify_all();
    }
  }

  // False: another lane has failed.
  bool wait_for(const PlanStep& step) {
    if (step.waits.empty()) return true;
    std::unique_lock lock(mutex_);
    for (const int signal : step.waits) {
      changed_.wait(lock, [&] { return failed_ || given_[static_cast<size_t>(signal)] == pass_; });
    }
    return !failed_;
  }
  void give(int signal) {
    {
      const std::lock_guard lock(mutex_);
      given_[static_cast<size_t>(signal)] = pass_;
    }
    changed_.notify_all();
  }

  void work(int device) {
    const auto at = static_cast<size_t>(device) - 1;
    uint64_t done = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || pass_ != done; });
      if (ending_) return;
      done = pass_;
      const Execution on{.stream = *streams_[at], .scratch = scratch_[at], .state = state_};
      lock.unlock();
      run_lane(device, on, nullptr);
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  std::vector<std::unique_ptr<Stream>> streams_;  // of device 1, 2, ...
  std::mutex mutex_;
  std::condition_variable changed_;
  // Of the pass underway.
  const std::vector<PlanStep>* steps_ = nullptr;
  const StepState* state_ = nullptr;
  std::span<void* const> scratch_;
  uint64_t pass_ = 0;            // its number
  std::vector<uint64_t> given_;  // by signal: the last pass in which it was given
  size_t running_ = 0;           // threads that have not ended it
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Lanes> make_lanes(std::span<KernelBackend* const> backends) {
  const Device& first = backends.front()->device();
  for (const KernelBackend* backend : backends) {
    require(backend->device().kind() == first.kind(),
            "a rank's devices must be of one kind: {} and {} are not", first.name(),
            backend->device().name());
  }
  if (first.host_accessible()) return std::make_unique<ThreadLanes>(backends);
  return std::make_unique<QueuedLanes>(backends);
}

}  // namespace rondo
