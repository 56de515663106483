// The ranks of one host share memory instead of sending messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/host/host_communicator.h"

namespace rondo {

class SharedWindows;

// MPI's windows among ranks of one host: `ranks` are theirs in MPI_COMM_WORLD, by rank in their shared world.
std::shared_ptr<SharedWindows> make_mpi_windows(std::shared_ptr<MpiSession> session, std::vector<int> ranks);

// Collective over MPI_COMM_WORLD. Null when the ranks do not lie on one host, or, with the reason on every
// rank, when they cannot share memory.
std::unique_ptr<Communicator> share_memory(const std::shared_ptr<MpiSession>& session, Device& device,
                                           const HostOptions& options, bool progress_thread,
                                           std::string& reason);

}  // namespace rondo
