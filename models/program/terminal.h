#pragma once

#include "runtime/comm/mpi/launcher.h"

namespace rondo {

// Whether somebody watches standard output. Open MPI gives every rank a pseudo-terminal, even when mpirun's
// own output goes to a file; there mpirun's output decides.
bool output_is_watched(const Launch& launch);

}  // namespace rondo
