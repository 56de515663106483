// Cores near a GPU: a rank that feeds a GPU from the other end of the machine pays for every byte and launch.
#pragma once

#include <string>
#include <vector>

namespace rondo {

// The logical processors of `allowed` that belong to a NUMA node, as `nodes` (Linux' list of nodes) has it.
// Empty where that is not known, or where none belongs to it.
std::vector<int> processors_near(int numa_node, const std::vector<int>& allowed,
                                 const std::string& nodes = "/sys/devices/system/node");

// Keeps all threads of this process, and those they start, on the processors near the node. A narrower choice
// made before, by a launcher say, is kept: a process never gets processors that it had not. Returns those it
// has now where that changed them, else nothing. Never throws: near is faster, not more right.
std::vector<int> stay_near(int numa_node);

}  // namespace rondo
