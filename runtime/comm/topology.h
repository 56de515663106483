#pragma once

#include <span>
#include <string>

#include "runtime/comm/communicator.h"

namespace rondo {

// The topology that rank `rank` sees when rank r runs on host_names[r].
Topology make_topology(std::span<const std::string> host_names, int rank);

// The name of the machine this process runs on.
std::string this_host_name();

}  // namespace rondo
