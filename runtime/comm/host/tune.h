// Measures what collectives cost on this job's hosts.
#pragma once

#include <memory>

#include "runtime/comm/cost_model.h"

namespace rondo {

class Device;
class MpiSession;

// Collective over MPI_COMM_WORLD; takes a few seconds, in which nothing else should run. Times calls of the
// collectives themselves, among two ranks and among all, through messages and through shared memory, as far
// as this job's ranks have them: what it cannot see (memory shared by the ranks of a host, where each has one
// only; links, where there is one host) stays as it is by default. Equal on all ranks. `device` is a host
// device.
CostModel measure_costs(const std::shared_ptr<MpiSession>& session, Device& device);

}  // namespace rondo
