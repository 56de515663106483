// Collectives among processes of one host through memory that they share.
//
// What a communicator makes of it:
//
//   SharedWorld   one per process and world: the control block, the doorbells, the heartbeat, the failure.
//   SharedGroup   one per set of ranks: a segment with a mailbox and two slots for each member.
//   SharedCollective  one call in flight: a state machine that its owner advances.
//
// A group's collectives run in the order in which they were started, one after the other; groups do not wait
// for each other. A caller that wants two independent orders among the same ranks (the two local phases of a
// collective across hosts) makes two groups.
//
// Nothing here calls MPI, and nothing but the constructors allocates or blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/shared/mapping.h"
#include "runtime/comm/signature.h"

namespace rondo {

class Bootstrap;
class SharedWorld;
struct GroupLayout;

// What moves. In place (in.data == out.data, or the block of `out` or `in` that belongs to this rank) is
// allowed everywhere. P is the group's size, and blocks lie one after the other in rank order.
enum class Transfer : uint8_t {
  kBarrier,
  kAllReduce,      // out[i] = op over ranks of in[i]
  kReduceScatter,  // in: P blocks, in_counts; out: this rank's block, reduced
  kBroadcast,      // out of the root to all; in is out
  kAllGather,      // out: P blocks, out_counts
  kAllToAll,  // in: P blocks, in_counts: one for each rank; out: P blocks, out_counts: one from each rank
  kGather,    // as kAllGather, out at the root only; out_counts everywhere
  kScatter,   // in at the root only: P blocks, in_counts; in_counts everywhere
};

struct SharedCall {
  Transfer transfer = Transfer::kBarrier;
  Signature signature;  // compared among the members; the sequence, too, is the caller's
  ConstSpan in;
  Span out;
  int root = 0;  // a rank of the group
  Reduction reduction;
  std::span<const int64_t> in_counts = {};  // read by start() only
  std::span<const int64_t> out_counts = {};
};

class SharedGroup {
 public:
  // Collective among the members: `members` ranks them, world_ranks[r] is member r's rank in the world.
  // Throws on every member, or on none.
  SharedGroup(std::shared_ptr<SharedWorld> world, Bootstrap& members, std::vector<int> world_ranks);
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  SharedWorld& world() const { return *world_; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // Collective. Zeroed memory that all members have mapped: collectives on it need no copies. Each member's
  // part is touched first by its owner, so it lies near it. Throws DeviceError on every member or on none.
  Buffer allocate(Bootstrap& members, int64_t bytes);

 private:
  friend class SharedCollective;

  std::shared_ptr<SharedWorld> world_;
  std::vector<int> world_ranks_;
  int rank_ = 0;
  Mapping mapping_;
  GroupLayout* layout_ = nullptr;
  int64_t started_ = 0;   // collectives
  int64_t finished_ = 0;  // of these, in order
};

}  // namespace rondo
