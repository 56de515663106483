#pragma once

#include <string>
#include <vector>

#include "runtime/train/callback.h"

namespace rondo {

class Communicator;

// The largest resident memory this process ever had, in bytes; 0 where the system does not tell.
int64_t peak_memory_bytes();

// Collective. Every rank's usage, in rank order.
std::vector<Usage> gather_usage(Communicator& comm, const Usage& mine);

// Who asked to stop, and why; empty names did not ask.
struct Stopper {
  std::string name;
  std::string reason;
};

// Collective. The names of all who asked, each with its ranks unless all ranks did, and the reason of the
// lowest rank: "EarlyStopping", "TimeLimit (rank 3)".
Stopper gather_stoppers(Communicator& comm, const Stopper& mine);

}  // namespace rondo
