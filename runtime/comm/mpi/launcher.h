// Who started this process, read from its environment before MPI is touched.
#pragma once

#include <functional>
#include <string>

namespace rondo {

struct Launch {
  std::string launcher;  // "Open MPI", "PMIx", "PMI", "Slurm"; empty: nobody, the process is a world of one
  int rank = 0;
  int size = 0;        // 0: the launcher does not say
  int local_size = 0;  // ranks on this host; 0: the launcher does not say

  explicit operator bool() const { return !launcher.empty(); }
};

// Looks for OMPI_COMM_WORLD_SIZE (Open MPI's mpirun), PMIX_RANK (PMIx), PMI_RANK with PMI_SIZE (MPICH's and
// others' launchers), SLURM_PROCID with SLURM_NTASKS above 1 inside a job step (srun), in this order. Slurm
// sets its variables in batch scripts and allocations too; those are no steps and do not count.
Launch launched_by();
Launch launched_by(const std::function<const char*(const char*)>& environment);

}  // namespace rondo
