#include "tests/comm/shared_ranks.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/comm/topology.h"
#include "tests/support/patience.h"

namespace rondo {
namespace {

constexpr size_t kBlobBytes = 1024;
constexpr int kMaxRanks = 16;

// Lies in memory that the forked processes inherit.
struct Board {
  std::atomic<int> arrived{0};
  std::atomic<int> left{0};
  std::byte blobs[kMaxRanks][kBlobBytes];
};

class BoardBootstrap final : public Bootstrap {
 public:
  BoardBootstrap(Board& board, int rank, int size) : board_(board), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    RONDO_CHECK(mine.size() <= kBlobBytes);
    ++round_;
    std::memcpy(board_.blobs[rank_], mine.data(), mine.size());
    meet(board_.arrived);
    for (int r = 0; r < size_; ++r) {
      std::memcpy(all.data() + static_cast<size_t>(r) * mine.size(), board_.blobs[r], mine.size());
    }
    meet(board_.left);
  }

 private:
  void meet(std::atomic<int>& counter) const {
    counter.fetch_add(1);
    while (counter.load() < round_ * size_) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  Board& board_;
  int rank_;
  int size_;
  int round_ = 0;
};

int run_child(Board& board, int rank, int size, const std::function<void(Bootstrap&)>& rank_main) {
  try {
    BoardBootstrap bootstrap(board, rank, size);
    rank_main(bootstrap);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rank %d] %s\n", rank, error.what());
    return 1;
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace

void fork_ranks(int size, const std::function<void(Bootstrap&)>& rank_main,
                const std::vector<int>& casualties, std::chrono::milliseconds limit) {
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Board& board = *new (shared) Board;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const int result = run_child(board, rank, size, rank_main);
      std::fflush(nullptr);
      _exit(result);
    }
    children.push_back(child);
  }
  const auto end = std::chrono::steady_clock::now() + test::patience(limit);
  bool late = false;
  for (int rank = 0; rank < size; ++rank) {
    const bool casualty = std::count(casualties.begin(), casualties.end(), rank) > 0;
    const pid_t child = children[static_cast<size_t>(rank)];
    if (casualty) continue;  // ended below, when nobody needs it any more
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        late = true;
        kill(child, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " failed";
  }
  for (const int rank : casualties) {
    kill(children[static_cast<size_t>(rank)], SIGKILL);
    waitpid(children[static_cast<size_t>(rank)], nullptr, 0);
  }
  EXPECT_FALSE(late) << "the ranks did not finish in time";
  munmap(shared, sizeof(Board));
}

void finish(SharedGroup& group, SharedCollective& collective) {
  SharedWait wait(group.world());
  for (;;) {
    const bool moved = collective.advance();
    if (collective.over()) break;
    if (group.world().failed()) throw PeerError(group.world().failure());
    if (moved) {
      wait.reset();
    } else {
      wait.pause();
    }
  }
  const std::vector<std::string> hosts(static_cast<size_t>(group.size()), "here");
  if (collective.differs()) throw MismatchError(collective.mismatch(make_topology(hosts, group.rank())));
}

void run(SharedGroup& group, const SharedCall& call) {
  SharedCollective collective(group);
  collective.start(call);
  finish(group, collective);
}

std::unique_ptr<SharedGroup> make_group(const std::shared_ptr<SharedWorld>& world, Bootstrap& bootstrap) {
  std::vector<int> ranks(static_cast<size_t>(bootstrap.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<SharedGroup>(world, bootstrap, ranks);
}

Subset::Subset(Bootstrap& all, std::vector<int> ranks) : all_(all), ranks_(std::move(ranks)) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), all.rank());
  if (found != ranks_.end()) rank_ = static_cast<int>(found - ranks_.begin());
}

void Subset::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  std::vector<std::byte> everything(mine.size() * static_cast<size_t>(all_.size()));
  all_.all_gather(mine, everything);
  for (size_t m = 0; m < ranks_.size(); ++m) {
    const std::byte* from = everything.data() + static_cast<size_t>(ranks_[m]) * mine.size();
    std::memcpy(all.data() + m * mine.size(), from, mine.size());
  }
}

}  // namespace rondo
