// How a thread waits for a peer: briefly at full speed, then giving way, then asleep.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace rondo {

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kSpin = std::chrono::microseconds(5);
  static constexpr auto kYield = std::chrono::microseconds(80);  // from the beginning of the wait
  static constexpr auto kSleep = std::chrono::microseconds(20);  // the kernel's timer slack adds about 50

  void reset() { waiting_ = false; }

  // Nothing moved: pauses for a moment. Returns true when it slept, so that rare checks can ride on that.
  bool pause() {
    const Clock::time_point now = Clock::now();
    if (!waiting_) {
      waiting_ = true;
      since_ = now;
    }
    if (now - since_ < kSpin) return false;
    if (now - since_ < kYield) {
      sched_yield();
      return false;
    }
    std::this_thread::sleep_for(kSleep);
    return true;
  }

 private:
  bool waiting_ = false;
  Clock::time_point since_;
};

}  // namespace rondo
