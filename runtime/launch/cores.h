// Which cores this process may use, and its share of them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace rondo {

// Cores are numbered as the machine is: two hardware threads of one core count once.
struct CoreSet {
  std::vector<int> cores;  // ascending
};

// Logical processors on which this thread may run, ascending. Never empty.
std::vector<int> allowed_processors();

// The physical cores behind this process's affinity mask. Never empty.
CoreSet affinity_cores();

// How many threads this process should use: each core of `own` is divided by the processes of the same host
// that may use it as well (`host` holds the sets of all of them, this one included). At least 1.
int share_of_cores(const CoreSet& own, std::span<const CoreSet> host);

// "0-3,8": for sending to other ranks and for messages.
std::string to_text(const CoreSet& set);
CoreSet parse_cores(const std::string& text);

}  // namespace rondo
