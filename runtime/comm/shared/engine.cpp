#include "runtime/comm/shared/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/comm/shared/work.h"
#include "runtime/comm/shared/world.h"

namespace rondo {
namespace {

constexpr size_t kUsualInFlight = 1024;

}  // namespace

SharedEngine::SharedEngine(std::shared_ptr<SharedWorld> world, Device& device, bool progress_thread,
                           std::shared_ptr<void> keep)
    : keep_(std::move(keep)), world_(std::move(world)), device_(device) {
  active_.reserve(kUsualInFlight);
  if (progress_thread) thread_ = std::thread([this] { run_thread(); });
  world_->set_check([this] { watch(); });
}

SharedEngine::~SharedEngine() {
  world_->set_check({});
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
    if (failure_.empty()) failure_ = "its communicator is gone";
    end_all(failure_);
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SharedEngine::add(SharedWork& work) {
  active_.push_back(&work);
  poll();
  if (has_thread() && !work.over()) wake_.notify_one();
}

bool SharedEngine::poll() {
  bool moved = false;
  bool any_over = false;
  try {
    if (world_->failed() && failure_.empty()) end_all(world_->failure());
    if (check_due_.load(std::memory_order_relaxed)) check_deadlines();
    for (SharedWork* work : active_) {
      moved = work->advance() || moved;
      any_over = any_over || work->over();
    }
  } catch (const PeerError& error) {
    world_->publish(error.what());
    end_all(world_->failure());
    return true;
  }
  if (any_over) std::erase_if(active_, [](const SharedWork* work) { return work->over(); });
  return moved;
}

void SharedEngine::check_deadlines() {
  check_due_.store(false, std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  for (const SharedWork* work : active_) work->check(now);
}

void SharedEngine::raise_failure() const {
  if (!failure_.empty()) throw PeerError(failure_);
  if (world_->failed()) throw PeerError(world_->failure());
}

void SharedEngine::end_all(const std::string& text) {
  if (failure_.empty()) failure_ = text;
  for (SharedWork* work : active_) work->fail();
  active_.clear();
}

void SharedEngine::publish(std::string_view reason) noexcept {
  world_->publish(reason);
  try {
    drive_once();
  } catch (...) {
    // The world has the failure; whoever calls next meets it.
  }
}

void SharedEngine::drive_once() {
  const Caller caller(*this);
  const std::lock_guard guard(mutex_);
  poll();
}

void SharedEngine::drive(SharedWork& work) {
  const Caller caller(*this);
  SharedWait wait(*world_);
  std::unique_lock guard(mutex_);
  while (!work.over()) {
    if (poll()) {
      wait.reset();
      continue;
    }
    if (work.over()) return;
    if (wait.spin()) continue;
    const bool event = work.waits_for_event();
    guard.unlock();
    const bool slept = wait.pause(event);
    guard.lock();
    if (slept) check_due_.store(true, std::memory_order_relaxed);  // cheap beside a sleep
  }
}

// On the watchdog's thread, which must not wait for the lock: who holds it polls, and looks for it.
void SharedEngine::watch() {
  constexpr auto kLongest = std::chrono::milliseconds(100);
  check_due_.store(true, std::memory_order_relaxed);
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock() || active_.empty()) return;
  // Where everybody has called and only this rank is busy elsewhere, the collective can be ended yet.
  check_due_.store(false, std::memory_order_relaxed);
  try {
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (overdue() && poll() && std::chrono::steady_clock::now() < end) {
    }
    check_due_.store(true, std::memory_order_relaxed);
    poll();
  } catch (const std::exception& error) {
    world_->publish(error.what());  // nobody else could say it
  }
}

bool SharedEngine::overdue() const {
  const auto now = std::chrono::steady_clock::now();
  return std::any_of(active_.begin(), active_.end(),
                     [now](const SharedWork* work) { return work->overdue(now); });
}

void SharedEngine::run_thread() {
  SharedWait wait(*world_);
  std::unique_lock guard(mutex_);
  while (!stop_) {
    if (active_.empty() || callers_.load() > 0) {
      wait.reset();
      wake_.wait_for(guard, std::chrono::milliseconds(active_.empty() ? 1000 : 1));
      continue;
    }
    const bool moved = poll();
    const bool event = std::any_of(active_.begin(), active_.end(),
                                   [](const SharedWork* work) { return work->waits_for_event(); });
    guard.unlock();
    bool slept = false;
    if (moved) {
      wait.reset();
    } else {
      slept = wait.pause(event);
    }
    guard.lock();
    if (slept) check_due_.store(true, std::memory_order_relaxed);
  }
}

}  // namespace rondo
