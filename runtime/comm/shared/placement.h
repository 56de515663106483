// Where the ranks of a host run, and in which order that puts them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// The first NUMA node and core of those that a process may use, numbered as they lie in the machine.
struct Placement {
  int32_t node = 0;
  int32_t core = 0;
};

// By logical processor, as the operating system numbers them. `synthetic`: a machine in hwloc's notation,
// such as "numa:2 core:4 pu:2"; empty: this one. Empty when hwloc cannot tell.
std::map<int, Placement> processor_placements(const std::string& synthetic = {});

// Of a process that may use these processors: where it begins. A process that is bound nowhere begins where
// the machine does, so that ranks without a binding keep their order.
Placement place(const std::map<int, Placement>& machine, std::span<const int> processors);
Placement own_placement();

// For each member, in the order given: its position when all are sorted by node, then core, then that order.
std::vector<int> places_of(std::span<const Placement> members);

}  // namespace rondo
