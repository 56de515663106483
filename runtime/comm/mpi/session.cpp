#include "runtime/comm/mpi/session.h"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/comm/mpi/mpi_check.h"

namespace rondo {
namespace {

void prefer_ob1_on_one_host(const Launch& launch) {
  // Without overwriting: mpirun --mca pml ... arrives here as the same variable.
  if (launch.size > 0 && launch.local_size == launch.size) setenv("OMPI_MCA_pml", "ob1", 0);
}

std::vector<std::string> gather_host_names(int size) {
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name mine{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(mine.data(), &length), "MPI_Get_processor_name");
  std::vector<Name> all(static_cast<size_t>(size));
  const int bytes = static_cast<int>(mine.size());
  check_mpi(MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather of the host names");
  std::vector<std::string> hosts;
  for (const Name& name : all) hosts.emplace_back(name.data());
  return hosts;
}

}  // namespace

std::shared_ptr<MpiSession> MpiSession::start(const Launch& launch) {
  return std::shared_ptr<MpiSession>(new MpiSession(launch));
}

MpiSession::MpiSession(const Launch& launch) : exceptions_at_start_(std::uncaught_exceptions()) {
  int flag = 0;
  MPI_Finalized(&flag);
  require(flag == 0, "MPI was finalized in this process and cannot start again; keep one session alive");
  MPI_Initialized(&flag);
  int provided = MPI_THREAD_SINGLE;
  if (flag != 0) {
    MPI_Query_thread(&provided);
  } else {
    prefer_ob1_on_one_host(launch);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    owner_ = true;
  }
  threads_allowed_ = provided >= MPI_THREAD_SERIALIZED;
  int size = 1;
  try {
    if (owner_)
      check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    if (launch.size > 1 && size == 1) {
      raise<PeerError>(
          "{} started {} ranks, but MPI sees a world of one: the launcher and this program's MPI ({}) do not "
          "know each other. {}",
          launch.launcher, launch.size, library(),
          launch.launcher == "Slurm" || launch.launcher == "PMIx"
              ? "Start with srun --mpi=pmix (srun --mpi=list shows what this Slurm has), or with mpirun "
                "inside salloc"
              : "Start with the mpirun of the MPI that this program was built with");
    }
    hosts_ = gather_host_names(size);
  } catch (...) {
    if (owner_ && size == 1) MPI_Finalize();
    throw;
  }
}

MpiSession::~MpiSession() {
  if (!owner_ || abandoned_ || std::uncaught_exceptions() > exceptions_at_start_) {
    // MPI goes on: what was kept for it must live as long as the process.
    static_cast<void>(new std::vector(std::move(kept_)));
    return;
  }
  MPI_Finalize();
}

std::string MpiSession::library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown MPI";
  const std::string whole(text.data());
  return whole.substr(0, whole.find_first_of(",\n"));
}

void MpiSession::abort(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

}  // namespace rondo
