#include "models/graph/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace rondo {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool live_together(const Storage& a, const Storage& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The smallest hole among `neighbours` (sorted by offset) that holds `bytes`, else the end of the last one.
int64_t best_offset(const std::vector<const Storage*>& neighbours, int64_t bytes) {
  int64_t best = -1;
  int64_t best_hole = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  for (const Storage* neighbour : neighbours) {
    const int64_t hole = neighbour->offset - end;
    if (hole >= bytes && hole < best_hole) {
      best = end;
      best_hole = hole;
    }
    end = std::max(end, neighbour->offset + aligned(neighbour->bytes));
  }
  return best >= 0 ? best : end;
}

}  // namespace

int64_t plan_memory(std::vector<Storage>& storages, bool reuse, int device) {
  std::vector<size_t> order(storages.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return storages[a].bytes > storages[b].bytes; });
  std::vector<const Storage*> placed;  // sorted by offset
  std::vector<const Storage*> neighbours;
  int64_t arena = 0;
  for (const size_t index : order) {
    Storage& storage = storages[index];
    if (storage.first < 0 || storage.device != device) continue;
    neighbours.clear();
    for (const Storage* other : placed) {
      if (!reuse || live_together(storage, *other)) neighbours.push_back(other);
    }
    storage.offset = best_offset(neighbours, aligned(storage.bytes));
    arena = std::max(arena, storage.offset + aligned(storage.bytes));
    const auto behind = [](const Storage* a, const Storage* b) { return a->offset < b->offset; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &storage, behind), &storage);
  }
  return arena;
}

}  // namespace rondo
