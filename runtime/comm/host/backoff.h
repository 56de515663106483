// How a thread waits for a peer: polling for a moment, then asleep between polls.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace rondo {

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kSpin = std::chrono::microseconds(80);   // from the beginning of the wait
  static constexpr auto kSleep = std::chrono::microseconds(20);  // the kernel's timer slack adds about 50

  // `yields`: gives the core away while it polls. Right when more threads wait than there are cores: the peer
  // may need this one. Else not: the core may be gone for milliseconds.
  explicit Backoff(bool yields) : yields_(yields) {}

  void reset() { waiting_ = false; }

  // Nothing moved: pauses for a moment. Returns true when it slept, so that rare checks can ride on that.
  bool pause() {
    const Clock::time_point now = Clock::now();
    if (!waiting_) {
      waiting_ = true;
      since_ = now;
    }
    if (now - since_ < kSpin) {
      if (yields_) sched_yield();
      return false;
    }
    std::this_thread::sleep_for(kSleep);
    return true;
  }

 private:
  bool yields_;
  bool waiting_ = false;
  Clock::time_point since_;
};

}  // namespace rondo
