// Ranks as processes without MPI, for tests of shared memory.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/collective.h"
#include "runtime/comm/shared/group.h"
#include "runtime/comm/shared/world.h"

namespace rondo {

// Forks `size` processes that run rank_main, each with its own bootstrap; waits for them, kills those that
// take longer than `limit`, and fails the test when one ends otherwise than in good order. Ranks in
// `casualties` may end as they like.
void fork_ranks(int size, const std::function<void(Bootstrap&)>& rank_main,
                const std::vector<int>& casualties = {},
                std::chrono::milliseconds limit = std::chrono::seconds(40));

// Advances until it is over; throws PeerError when the world has failed, MismatchError when members differ.
void finish(SharedGroup& group, SharedCollective& collective);
void run(SharedGroup& group, const SharedCall& call);

// The group of all ranks of a world.
std::unique_ptr<SharedGroup> make_group(const std::shared_ptr<SharedWorld>& world, Bootstrap& bootstrap);

// The members `ranks` of a bootstrap, among themselves; all of its ranks must take part.
class Subset final : public Bootstrap {
 public:
  Subset(Bootstrap& all, std::vector<int> ranks);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

 private:
  Bootstrap& all_;
  std::vector<int> ranks_;
  int rank_ = -1;
};

}  // namespace rondo
