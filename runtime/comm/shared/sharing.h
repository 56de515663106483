// How the ranks of a world come to memory that they share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/shared/mapping.h"
#include "runtime/comm/shared/placement.h"

namespace rondo {

struct Sharing {
  Passing passing = Passing::kAuto;
  std::shared_ptr<SharedWindows> windows = nullptr;  // null: there are none
  std::vector<Placement> placements = {};            // by world rank; empty: not known yet

  // By member, whose ranks in the world are world_ranks: its place when they are sorted by where they run.
  std::vector<int> places(std::span<const int> world_ranks) const;
  // map_shared among them: the parts lie in the order of the places.
  Mapping map(Bootstrap& members, std::span<const int> world_ranks, int64_t part_bytes) const;
};

}  // namespace rondo
