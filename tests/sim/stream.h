// A simulated stream: a thread that runs queued tasks in order, each after a random delay.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/sim/clock.h"

namespace rondo::sim {

class Capture;
class Stream;

// A place in a stream's work: done when so many of its tasks are.
struct Point {
  std::shared_ptr<Stream> stream;  // null: done
  uint64_t tick = 0;

  bool done() const;
  void wait() const;  // blocks the calling thread
};

// A point, and what has happened when it is reached.
struct Mark {
  Point point;
  Clock clock;
};

struct Task {
  uint64_t tick = 0;
  std::vector<Point> after;
  std::function<void()> body;
  std::vector<uintptr_t> opens;  // device allocations that the body may touch
  int delay_us = 0;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  struct Options {
    int device = 0;
    uint32_t index = 0;     // its component of the clocks
    uint64_t number = 0;    // for messages: streams of a device are numbered as they are made
    uint64_t first = 0;     // ticks of the component's earlier streams
    bool blocking = false;  // orders itself with the default stream
    bool is_default = false;
    int priority = 0;
    unsigned flags = 0;
  };

  static std::shared_ptr<Stream> start(const Options& options);

  const Options& options() const { return options_; }
  int device() const { return options_.device; }
  std::string name() const;

  void push(Task task);
  void close();  // the thread ends when the queue is empty
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  void wait_completed(uint64_t tick);

  // Under the driver's lock: what is queued so far, and what the last task knows.
  uint64_t submitted = 0;
  Clock clock;
  uint64_t default_seen = 0;  // how far the default stream's work is known to this one
  std::shared_ptr<Capture> capture;
  std::vector<int> frontier;  // in a capture: nodes that the next one depends on

 private:
  explicit Stream(const Options& options);
  void run();

  const Options options_;
  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable done_;
  std::deque<Task> queue_;
  bool closing_ = false;
  std::atomic<uint64_t> completed_{0};
};

}  // namespace rondo::sim
