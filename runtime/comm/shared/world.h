// What the ranks of one host share, whatever communicators they make: doorbells, heartbeats and one failure.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/comm/shared/descriptor.h"
#include "runtime/comm/shared/mapping.h"
#include "runtime/comm/shared/sharing.h"

namespace rondo {

class Bootstrap;
class SharedMemory;
struct RankBlock;
struct FailureBlock;

struct SharedWorldOptions {
  std::vector<std::string> names = {};  // how messages name each rank: "rank 3 (node7)"; empty: "rank 3"
  Passing passing = Passing::kAuto;
  std::shared_ptr<SharedWindows> windows = nullptr;  // where descriptors cannot be passed
  int64_t letter_bytes = 2 << 10;                    // see CostModel; the first rank's counts
  std::chrono::milliseconds heartbeat = std::chrono::milliseconds(500);  // between two beats of a rank
  std::chrono::milliseconds silence = std::chrono::milliseconds(6000);   // after which a rank counts as lost
};

class SharedWorld {
 public:
  // Collective among the ranks of one host. Throws on every rank or on none: Unavailable when they cannot
  // share memory, DeviceError when there is none.
  static std::shared_ptr<SharedWorld> join(Bootstrap& ranks, const SharedWorldOptions& options = {});
  ~SharedWorld();
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int rank) const { return names_[static_cast<size_t>(rank)]; }
  bool crowded() const { return crowded_; }  // more ranks than cores: who waits should not keep its core
  SharedMemory& memory() const { return *memory_; }
  int64_t letter_bytes() const { return options_.letter_bytes; }
  const Sharing& sharing() const { return *sharing_; }
  // Why windows had to be used; empty: they are not.
  const std::string& why_windows() const { return why_windows_; }

  // The first failure that a rank published or a watchdog found; it never changes afterwards.
  bool failed() const;
  std::string failure() const;
  // Publishes a failure as this rank's, "rank 3 (node7): reason", and wakes everybody.
  void publish(std::string_view reason) noexcept;
  // `check` is called by the watchdog with each of its beats, until another replaces it or none does; not
  // after this returns. It must not wait for anything: beats come after it.
  void set_check(std::function<void()> check);
  // That rank has ended its world in good order: it will not take part in anything any more.
  bool has_left(int rank) const;

  // Wakes those of the ranks that sleep. To be called after a sequentially consistent store of what they wait
  // for.
  void ring(std::span<const int> ranks);

 private:
  friend class SharedWait;
  struct Peer;

  explicit SharedWorld(Bootstrap& ranks, const SharedWorldOptions& options);
  RankBlock& block(int rank) const;
  FailureBlock& failure_block() const;
  void map(Bootstrap& ranks);
  void announce(std::string_view text) noexcept;
  void ring_everybody();
  void watch();
  void check_peers(std::chrono::steady_clock::time_point now);

  SharedWorldOptions options_;
  std::vector<std::string> names_;
  int rank_ = 0;
  bool crowded_ = false;
  std::shared_ptr<Sharing> sharing_;
  std::string why_windows_;
  Mapping mapping_;
  std::shared_ptr<SharedMemory> memory_;

  std::vector<Peer> peers_;  // by rank; the watchdog's
  std::thread watchdog_;
  std::mutex watch_mutex_;
  std::condition_variable watch_changed_;
  std::function<void()> check_;
  bool stop_ = false;
};

// How a thread waits for other ranks of its host. After advancing everything that it drives:
//
//   SharedWait wait(world);
//   while (!over) moved ? wait.reset() : wait.pause();
//
// Spins for some 20 microseconds (not where ranks outnumber cores), then gives the core away between polls
// for some 80, then sleeps until a rank rings, or `longest` has passed. It announces the sleep one poll
// before it sleeps, so that no change is missed.
class SharedWait {
 public:
  explicit SharedWait(SharedWorld& world, std::chrono::microseconds longest = std::chrono::milliseconds(50))
      : world_(world), longest_(longest) {}
  ~SharedWait() { reset(); }
  SharedWait(const SharedWait&) = delete;
  SharedWait& operator=(const SharedWait&) = delete;

  void reset();
  // Spins for a moment and returns true, as long as spinning is right.
  bool spin();
  // Returns true when it slept, so that rare checks can ride on that. `polls`: somebody waits for something
  // that does not ring; sleeps for a few microseconds only.
  bool pause(bool polls = false);

 private:
  enum class Stage : uint8_t { kSpin, kYield, kAnnounced };

  SharedWorld& world_;
  std::chrono::microseconds longest_;
  Stage stage_ = Stage::kSpin;
  int spins_ = 0;
  std::chrono::steady_clock::time_point since_;
  uint32_t ticket_ = 0;
};

}  // namespace rondo
