// Reductions among the ranks of several hosts, in three phases: the ranks of a host cut the sum of their
// buffers among themselves in shared memory; each rank reduces its shard with the ranks that hold the same
// shard on the other hosts, all shards at once; the ranks of a host share what they got. Every byte crosses a
// host's link as often as if the host were one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/host/group.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/group.h"

namespace rondo {

class Communicator;
class MpiSession;
class SharedWorld;
struct SharedWorldOptions;

// Lets collectives pass in the order of their sequence numbers, whatever order they come in.
class Turns {
 public:
  static constexpr int64_t kSpan = 2048;  // numbers on the way at once, at most

  Turns() : passed_(kSpan, 0) {}
  int64_t next() const { return next_; }
  bool is_turn_of(int64_t sequence) const { return sequence == next_; }
  void pass(int64_t sequence) {
    passed_[static_cast<size_t>(sequence % kSpan)] = 1;
    for (auto* mark = &passed_[static_cast<size_t>(next_ % kSpan)]; *mark != 0;
         mark = &passed_[static_cast<size_t>(next_ % kSpan)]) {
      *mark = 0;
      ++next_;
    }
  }

 private:
  int64_t next_ = 0;
  std::vector<uint8_t> passed_;
};

// A bootstrap over a communicator's own collectives.
class CommunicatorBootstrap final : public Bootstrap {
 public:
  explicit CommunicatorBootstrap(Communicator& comm) : comm_(comm) {}
  int rank() const override;
  int size() const override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

 private:
  Communicator& comm_;
};

struct Hierarchy {
  std::unique_ptr<Communicator> local;  // the members on this host; for allocations
  HostGroup across;                     // those with this one's local index, one of each host
  std::unique_ptr<SharedGroup> scatter;
  std::unique_ptr<SharedGroup> gather;
  // A group's calls run in the order in which they start, so that order must be the same on all its ranks.
  Turns scatter_turns;
  Turns gather_turns;
};

// Whether a hierarchy fits: several hosts, each with the same number of ranks, more than one.
bool hierarchy_fits(const Topology& topology);

// Collective among the ranks of the world, of which `flat` is a communicator. Lets the ranks of each host
// share memory; null, on every rank, when the ranks of some host cannot.
// `options` without names and windows.
std::shared_ptr<SharedWorld> join_hosts(const HostGroup& world, Communicator& flat,
                                        const std::shared_ptr<MpiSession>& session,
                                        SharedWorldOptions options);

// Collective among the ranks of `group`, of which `flat` is a communicator. Null, on every rank, when some
// host's memory does not suffice. local_ranks[w] is world rank w's rank in its SharedWorld.
std::unique_ptr<Hierarchy> make_hierarchy(const HostGroup& group, Communicator& flat,
                                          const std::shared_ptr<SharedWorld>& world,
                                          const std::vector<int>& local_ranks);

// The same for a group that lies within one host.
std::unique_ptr<SharedGroup> make_shared_set(const HostGroup& group, Communicator& flat,
                                             const std::shared_ptr<SharedWorld>& world,
                                             const std::vector<int>& local_ranks);

}  // namespace rondo
