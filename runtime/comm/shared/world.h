// What the ranks of one host share, whatever communicators they make: doorbells, heartbeats and one failure.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

class Bootstrap;
class SharedMemory;

struct SharedWorldOptions {
  std::vector<std::string> names = {};  // how messages name each rank: "rank 3 (node7)"
  std::chrono::milliseconds heartbeat = std::chrono::milliseconds(500);  // between two beats of a rank
  std::chrono::milliseconds silence = std::chrono::milliseconds(6000);   // after which a rank counts as lost
};

class SharedWorld {
 public:
  // Collective among the ranks of one host. Throws Unavailable on every rank, with the reason, when they
  // cannot share memory (another container, no memfd).
  static std::shared_ptr<SharedWorld> join(Bootstrap& ranks, const SharedWorldOptions& options = {});
  ~SharedWorld();

  int rank() const;
  int size() const;
  bool crowded() const;  // more ranks than cores: a waiting rank should not keep its core

  // The first failure that any rank published, or that a watchdog found. Empty while all is well; never
  // changes afterwards. failed() is one load.
  bool failed() const;
  std::string failure() const;
  // Publishes a failure as this rank's ("rank 3 (node7): reason") and wakes everybody.
  void publish(std::string_view reason) noexcept;

  // Tells the members who sleep that something in the group's memory has changed.
  void ring(const std::vector<int>& ranks);

 private:
  SharedWorld() = default;
};

// How a thread waits for other ranks of its host. After advancing everything that it drives:
//
//   SharedWait wait(world);
//   while (!over) moved ? wait.reset() : wait.pause();
//
// Spins for a microsecond or two, then gives the core away between polls for some 80, then sleeps until a
// rank rings, or `longest` has passed. It announces the sleep one poll before it sleeps, so that no change is
// missed.
class SharedWait {
 public:
  explicit SharedWait(SharedWorld& world, std::chrono::microseconds longest = std::chrono::milliseconds(50));
  ~SharedWait() { reset(); }
  SharedWait(const SharedWait&) = delete;
  SharedWait& operator=(const SharedWait&) = delete;

  void reset();
  bool pause();  // true when it slept, so that rare checks can ride on that

 private:
  SharedWorld& world_;
};

}  // namespace rondo
