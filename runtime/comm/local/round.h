// One collective among threads: who has arrived with what, and the work that the last one to arrive does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/signature.h"

namespace rondo::local {

// What all communicators of one world share: one lock, one failure.
struct Family {
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;
  std::vector<std::string> hosts;  // by world rank
  std::chrono::milliseconds deadline;
  std::unique_ptr<Device> device;
};

// The arguments of one rank's call. Spans of arrays are read during the call only.
struct Call {
  Signature signature;
  ConstSpan in = {};
  Span out = {};
  std::span<const int64_t> counts = {};          // of the blocks of `in`, or of all blocks
  std::span<const int64_t> receive_counts = {};  // all_to_all_v: of the blocks of `out`
  std::span<const SpanPair> pairs = {};          // all_reduce_group
  int color = 0;                                 // split
  int key = 0;
};

// What one rank brings to a collective.
struct Post {
  bool here = false;
  Call call;
  std::vector<int64_t> counts;
  std::vector<int64_t> receive_counts;
  std::vector<SpanPair> pairs;

  void take(const Call& from);
};

struct Group;

// One collective of one group, from the first arrival until every rank has let go of it.
struct Round {
  int64_t sequence = 0;
  int arrived = 0;
  int released = 0;
  bool done = false;
  std::string mismatch;
  std::vector<Post> posts;
  // For the work.
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<std::byte> staging;
  std::vector<std::pair<std::shared_ptr<Group>, int>>
      children;  // split: each rank's new group and its rank there
};

struct Group {
  std::shared_ptr<Family> family;
  std::vector<int> world_ranks;
  std::vector<std::unique_ptr<Round>> rounds;  // all that were ever needed at once
  std::vector<Round*> active;
  std::vector<Round*> idle;

  int size() const { return static_cast<int>(world_ranks.size()); }
  Topology topology(int rank) const;
  Round& round(int64_t sequence);
  void release(Round& round);
};

// Compares the calls and does what they ask for; leaves a mismatch's text in the round.
void run_round(Group& group, Round& round);

}  // namespace rondo::local
