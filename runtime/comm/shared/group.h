// The ranks of one host that make collectives together, and what each of them shows the others.
//
//   SharedWorld       one for each process: doorbells, heartbeats, the failure, allocations.
//   SharedGroup       one for each set of ranks: a mailbox and a few slots for each member.
//   SharedCollective  one call in flight: a state machine that its owner advances.
//
// A group's collectives run in the order in which they were started, one after the other; groups do not wait
// for each other. Who wants two independent orders among the same ranks (the two phases within a host of a
// collective across hosts) makes two groups. Nothing here calls MPI, and nothing but constructors and
// allocate() blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/shared/mapping.h"
#include "runtime/comm/shared/memory.h"
#include "runtime/comm/signature.h"

namespace rondo {

class Bootstrap;
class SharedWorld;

// How the others come to what a rank gives to a collective.
enum class Source : uint8_t {
  kNone,     // it gives nothing
  kTiny,     // a copy lies in the post
  kLetter,   // short: a copy lies behind the post
  kInPlace,  // they read it where it lies
  kSlots,    // it goes chunk by chunk through the slots
};

// What a rank says about one collective: one cache line, and its letter behind it, so that a short call moves
// few lines between cores. Posts alternate between two places: who posts call n+2 has seen all posts of n+1,
// and those were made after the posts of n had been read.
struct alignas(64) Post {
  static constexpr int64_t kTinyBytes = 32;
  struct Places {
    Place in, out;
  };

  std::atomic<int64_t> call{0};  // number of the call + 1, stored last
  uint64_t key = 0;              // of its signature
  int64_t chunks = 0;            // kSlots: how many
  Source source = Source::kNone;
  union {
    Places places{};
    std::byte tiny[kTinyBytes];
  };
};
static_assert(sizeof(Post) == 64);

// Counters that only their rank writes. They only grow: of calls, or of chunks over the life of the group.
// Lines that different ranks write lie two cache lines apart, since processors fetch them in pairs.
struct Mailbox {
  alignas(128) std::atomic<int64_t> departed{0};  // calls whose data in other ranks' memory it needs no more
  alignas(128) std::atomic<int64_t> filled{0};    // chunks in its slots
  alignas(128) std::atomic<int64_t> reduced{0};   // chunks of which its share is reduced
  alignas(128) std::atomic<int64_t> consumed{0};  // chunks that it has taken out of all slots
  alignas(128) Signature signatures[2];           // of its posts; looked at when keys differ
};

class SharedGroup {
 public:
  static constexpr int64_t kLetterBytes = 32 << 10;
  // Of a rank's slots as few are in use at once as keep it busy, so that they stay in the caches; where ranks
  // share cores, as many as there are: they meet less often.
  static constexpr int64_t kSlotBytes = 32 << 10;
  static constexpr int kSlots = 32;
  static constexpr int kSlotsInCache = 8;

  // Collective among the members: `members` ranks them, world_ranks[r] is member r's rank in the world.
  // Throws on every member or on none.
  SharedGroup(std::shared_ptr<SharedWorld> world, Bootstrap& members, std::vector<int> world_ranks);
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  SharedWorld& world() const { return *world_; }
  std::span<const int> world_ranks() const { return world_ranks_; }
  // Where a member comes when they are sorted by NUMA node, then core; the share of the work that it does.
  int place(int rank) const { return places_[static_cast<size_t>(rank)]; }

  // Collective. Zeroed memory that all members have mapped: collectives on it need no copies. Each member's
  // part lies near it. Throws DeviceError on every member or on none.
  Buffer allocate(Bootstrap& members, int64_t bytes);

 private:
  friend class SharedCollective;

  Mailbox& mailbox(int rank) const { return *reinterpret_cast<Mailbox*>(mapping_.part(rank)); }
  Post& post(int rank, int64_t call) const;
  // Two rows of size() numbers: the call's in_counts and out_counts, where members' may differ.
  int64_t* counts(int rank, int64_t call) const;
  std::byte* letter(int rank, int64_t call) const;  // of a post with kTiny or kLetter
  std::byte* slot(int rank, int64_t chunk) const;
  int slots_in_use() const;
  void ring() const;

  std::shared_ptr<SharedWorld> world_;
  std::vector<int> world_ranks_;
  std::vector<int> places_;
  int rank_ = 0;
  Mapping mapping_;
  int64_t started_ = 0;   // calls
  int64_t finished_ = 0;  // of these, in order
  int64_t chunks_ = 0;    // that have gone through the slots in all finished calls
};

}  // namespace rondo
