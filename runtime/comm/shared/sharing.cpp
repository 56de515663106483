#include "runtime/comm/shared/sharing.h"

namespace rondo {

std::vector<int> Sharing::places(std::span<const int> world_ranks) const {
  std::vector<Placement> members(world_ranks.size());
  for (size_t m = 0; m < members.size() && !placements.empty(); ++m) {
    members[m] = placements[static_cast<size_t>(world_ranks[m])];
  }
  return places_of(members);
}

Mapping Sharing::map(Bootstrap& members, std::span<const int> world_ranks, int64_t part_bytes) const {
  const std::vector<int> order = places(world_ranks);
  return map_shared(
      members, part_bytes,
      {.passing = passing, .windows = windows.get(), .world_ranks = world_ranks, .places = order});
}

}  // namespace rondo
