#pragma once

namespace rondo {

struct BindOptions;

// For programs whose users ask for several GPUs without a launcher (`train --gpus 4`): replaces this process
// by that many ranks of it on this host, one for each GPU, under Open MPI's mpirun, which is looked for in
// PATH. Returns where there is nothing to start: one GPU or none is asked for, a launcher started this
// process already, or the request is wrong for this host, which bind_device tells. Throws Unavailable where
// there is no mpirun. To be called first in main: after MPI, threads or signal handlers it is too late.
void start_local_ranks(const BindOptions& options, char** argv);

}  // namespace rondo
