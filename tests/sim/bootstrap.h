// How ranks find each other: the unique id holds the address of a thread that hands each the addresses of
// all.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "tests/sim/comm.h"

namespace rondo::sim {

ncclResult_t open_bootstrap(ncclUniqueId& id, std::string& why);
// Tells of `own`, and waits for everybody's, in rank order.
ncclResult_t meet_at(const ncclUniqueId& id, const Member& own, const Wait& wait, std::vector<Member>& table,
                     std::string& why);

}  // namespace rondo::sim
