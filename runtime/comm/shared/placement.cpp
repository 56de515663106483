#include "runtime/comm/shared/placement.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "runtime/base/handle.h"

namespace rondo {
namespace {

struct TopologyTraits {
  static hwloc_topology_t empty() { return nullptr; }
  static void destroy(hwloc_topology_t topology) { hwloc_topology_destroy(topology); }
};
using TopologyHandle = Handle<hwloc_topology_t, TopologyTraits>;

std::tuple<int32_t, int32_t> key(const Placement& placement) {
  return {placement.node, placement.core};
}

std::vector<int> own_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &set)) processors.push_back(p);
  }
  return processors;
}

}  // namespace

std::map<int, Placement> processor_placements(const std::string& synthetic) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {};
  const TopologyHandle owner(topology);
  // Only cores, processors and memory: caches and devices cost time that a start-up has not.
  hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  // What nodes hang on: without it each would have the processors of the whole machine.
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  // The kernel knows as much; asking each processor itself would take a turn on all of them.
  hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (!synthetic.empty() && hwloc_topology_set_synthetic(topology, synthetic.c_str()) != 0) return {};
  if (hwloc_topology_load(topology) != 0) return {};
  std::map<int, Placement> placements;
  const auto visit = [&](hwloc_obj_type_t type, int32_t Placement::*number) {
    for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, type); ++i) {
      const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
      for (int p = hwloc_bitmap_first(object->cpuset); p != -1; p = hwloc_bitmap_next(object->cpuset, p)) {
        placements[p].*number = i;
      }
    }
  };
  visit(HWLOC_OBJ_NUMANODE, &Placement::node);
  visit(HWLOC_OBJ_CORE, &Placement::core);
  return placements;
}

Placement place(const std::map<int, Placement>& machine, std::span<const int> processors) {
  Placement first;
  bool found = false;
  for (const int processor : processors) {
    const auto at = machine.find(processor);
    if (at == machine.end() || (found && key(at->second) >= key(first))) continue;
    first = at->second;
    found = true;
  }
  return first;
}

Placement own_placement() {
  const std::vector<int> processors = own_processors();
  const bool bound = static_cast<long>(processors.size()) < sysconf(_SC_NPROCESSORS_ONLN);
  return bound ? place(processor_placements(), processors) : Placement{};
}

std::vector<int> places_of(std::span<const Placement> members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(members[a]) < key(members[b]); });
  std::vector<int> places(members.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<int>(i);
  return places;
}

}  // namespace rondo
