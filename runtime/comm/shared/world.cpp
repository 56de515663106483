#include "runtime/comm/shared/world.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <fstream>
#include <new>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/memory.h"

namespace rondo {

using Clock = std::chrono::steady_clock;

// Lines that different ranks write lie two cache lines apart, since processors fetch them in pairs.
struct RankBlock {
  alignas(128) std::atomic<uint32_t> rings{0};  // the word that sleepers wait on
  std::atomic<uint32_t> sleepers{0};
  alignas(128) std::atomic<uint64_t> beats{0};
  std::atomic<uint32_t> left{0};
};

struct FailureBlock {
  enum State : uint32_t { kNone, kBeingWritten, kWritten };
  alignas(128) std::atomic<uint32_t> state{kNone};
  char text[1024] = {};
};

namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

constexpr int kSpins = 400;  // with a poll between each, some 20 microseconds
constexpr auto kYielding = std::chrono::microseconds(80);
constexpr auto kBetweenPolls = std::chrono::microseconds(20);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::microseconds longest) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const std::chrono::nanoseconds rest = longest - seconds;
  const timespec time{seconds.count(), static_cast<long>(rest.count())};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// When the process with this number started, in ticks since boot: together with the number it names one
// process. 0: no such process.
uint64_t start_time(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  size_t at = text.rfind(')');  // the second field, the program's name, may contain anything
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

Descriptor open_process(int64_t pid) {
#ifdef SYS_pidfd_open
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
#else
  static_cast<void>(pid);
  return Descriptor();
#endif
}

struct Identity {
  int64_t pid = 0;
  uint64_t start = 0;
  Placement placement;
  int64_t letter_bytes = 0;
};

}  // namespace

struct SharedWorld::Peer {
  Descriptor process;  // empty: its end shows in its beats only
  uint64_t beats = 0;
  Clock::time_point heard;
};

std::shared_ptr<SharedWorld> SharedWorld::join(Bootstrap& ranks, const SharedWorldOptions& options) {
  return std::shared_ptr<SharedWorld>(new SharedWorld(ranks, options));
}

SharedWorld::SharedWorld(Bootstrap& ranks, const SharedWorldOptions& options)
    : options_(options), names_(options.names), rank_(ranks.rank()) {
  RONDO_CHECK(names_.empty() || static_cast<int>(names_.size()) == ranks.size());
  for (int r = static_cast<int>(names_.size()); r < ranks.size(); ++r) {
    names_.push_back(fmt::format("rank {}", r));
  }
  crowded_ = ranks.size() > sysconf(_SC_NPROCESSORS_ONLN);
  sharing_ = std::make_shared<Sharing>(Sharing{.passing = options.passing, .windows = options.windows});
  map(ranks);
  memory_ = std::make_shared<SharedMemory>(ranks.size(), rank_, sharing_);
  new (mapping_.part(rank_)) RankBlock;
  if (rank_ == 0) new (&failure_block()) FailureBlock;
  const Identity mine{getpid(), start_time(getpid()), own_placement(), options_.letter_bytes};
  std::vector<Identity> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  options_.letter_bytes = all[0].letter_bytes;
  peers_.resize(all.size());
  for (size_t r = 0; r < all.size(); ++r) {
    const Identity& peer = all[r];
    sharing_->placements.push_back(peer.placement);
    // Only where the number means the same process here as there.
    if (peer.pid != mine.pid && peer.start != 0 && start_time(peer.pid) == peer.start)
      peers_[r].process = open_process(peer.pid);
    peers_[r].heard = Clock::now();
  }
  if (size() > 1 && options_.heartbeat.count() > 0) watchdog_ = std::thread([this] { watch(); });
}

SharedWorld::~SharedWorld() {
  {
    const std::lock_guard lock(watch_mutex_);
    stop_ = true;
  }
  watch_changed_.notify_one();
  if (watchdog_.joinable()) watchdog_.join();
  block(rank_).left.store(1);
  ring_everybody();
}

void SharedWorld::map(Bootstrap& ranks) {
  std::vector<int> everybody(names_.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto map_all = [&] {
    mapping_ = sharing_->map(ranks, everybody, sizeof(RankBlock) + sizeof(FailureBlock));
  };
  if (sharing_->passing != Passing::kWindow) {
    try {
      return map_all();
    } catch (const Unavailable& error) {
      if (sharing_->windows == nullptr) throw;
      why_windows_ = error.what();
    }
  } else {
    why_windows_ = "as was asked for";
  }
  // The same on all ranks, since errors are.
  sharing_->passing = Passing::kWindow;
  try {
    map_all();
  } catch (const DeviceError& error) {
    raise<Unavailable>("{}; {}", why_windows_, error.what());
  }
}

RankBlock& SharedWorld::block(int rank) const {
  return *reinterpret_cast<RankBlock*>(mapping_.part(rank));
}

FailureBlock& SharedWorld::failure_block() const {
  return *reinterpret_cast<FailureBlock*>(mapping_.part(0) + sizeof(RankBlock));
}

bool SharedWorld::failed() const {
  return failure_block().state.load(std::memory_order_relaxed) != FailureBlock::kNone;
}

std::string SharedWorld::failure() const {
  const FailureBlock& failure = failure_block();
  // Its writer needs a moment, and may die in it.
  const auto end = Clock::now() + std::chrono::milliseconds(100);
  while (failure.state.load() == FailureBlock::kBeingWritten && Clock::now() < end) sched_yield();
  switch (failure.state.load()) {
    case FailureBlock::kNone:
      return {};
    case FailureBlock::kBeingWritten:
      return "a rank of this host died while it told of a failure";
    default:
      return failure.text;
  }
}

void SharedWorld::announce(std::string_view text) noexcept {
  FailureBlock& failure = failure_block();
  uint32_t expected = FailureBlock::kNone;
  if (!failure.state.compare_exchange_strong(expected, FailureBlock::kBeingWritten)) return;
  const size_t length = std::min(text.size(), sizeof(failure.text) - 1);
  std::memcpy(failure.text, text.data(), length);
  failure.text[length] = '\0';
  failure.state.store(FailureBlock::kWritten);
  ring_everybody();
}

void SharedWorld::publish(std::string_view reason) noexcept {
  try {
    announce(fmt::format("{}: {}", name(rank_), reason));
  } catch (...) {
    announce(reason);  // no memory for the name
  }
}

void SharedWorld::set_check(std::function<void()> check) {
  const std::lock_guard lock(watch_mutex_);
  check_ = std::move(check);
}

bool SharedWorld::has_left(int rank) const {
  return block(rank).left.load() != 0;
}

void SharedWorld::ring(std::span<const int> ranks) {
  for (const int rank : ranks) {
    RankBlock& peer = block(rank);
    if (rank == rank_ || peer.sleepers.load() == 0) continue;
    peer.rings.fetch_add(1);
    futex_wake(peer.rings);
  }
}

void SharedWorld::ring_everybody() {
  for (int rank = 0; rank < size(); ++rank) {
    block(rank).rings.fetch_add(1);  // this rank's other threads, too
    futex_wake(block(rank).rings);
  }
}

void SharedWorld::watch() {
  std::unique_lock lock(watch_mutex_);
  Clock::time_point last = Clock::now();
  while (!stop_) {
    block(rank_).beats.fetch_add(1);
    watch_changed_.wait_for(lock, options_.heartbeat);
    const Clock::time_point now = Clock::now();
    // After a pause of its own (this process was stopped, or the machine) a rank cannot judge the others.
    const bool paused = now - last > options_.heartbeat * 4;
    last = now;
    if (paused) {
      for (Peer& peer : peers_) peer.heard = now;
    }
    if (stop_ || failed()) continue;
    check_peers(now);
    if (check_) check_();
  }
}

void SharedWorld::check_peers(Clock::time_point now) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_ || has_left(rank)) continue;
    Peer& peer = peers_[static_cast<size_t>(rank)];
    pollfd ended{peer.process.get(), POLLIN, 0};
    if (peer.process && poll(&ended, 1, 0) == 1 && !has_left(rank)) {
      announce(fmt::format("{} died: its process is gone", name(rank)));
      return;
    }
    const uint64_t beats = block(rank).beats.load();
    if (beats != peer.beats) {
      peer.beats = beats;
      peer.heard = now;
    } else if (options_.silence.count() > 0 && now - peer.heard > options_.silence) {
      announce(
          fmt::format("{} has given no sign of life for {:.1f} s: it was stopped, or does not get a core",
                      name(rank), std::chrono::duration<double>(now - peer.heard).count()));
      return;
    }
  }
}

void SharedWait::reset() {
  if (stage_ == Stage::kAnnounced) world_.block(world_.rank_).sleepers.fetch_sub(1);
  stage_ = Stage::kSpin;
  spins_ = 0;
}

bool SharedWait::spin() {
  if (stage_ != Stage::kSpin || world_.crowded_ || spins_ >= kSpins) return false;
  ++spins_;
  relax();
  return true;
}

bool SharedWait::pause(bool polls) {
  RankBlock& own = world_.block(world_.rank_);
  switch (stage_) {
    case Stage::kSpin:
      if (spin()) return false;
      since_ = Clock::now();
      stage_ = Stage::kYield;
      [[fallthrough]];
    case Stage::kYield:
      if (Clock::now() - since_ < kYielding) {
        sched_yield();
        return false;
      }
      own.sleepers.fetch_add(1);
      stage_ = Stage::kAnnounced;
      ticket_ = own.rings.load();
      return false;
    case Stage::kAnnounced:
      break;
  }
  futex_wait(own.rings, ticket_, polls ? std::min(longest_, kBetweenPolls) : longest_);
  ticket_ = own.rings.load();
  return true;
}

}  // namespace rondo
