#include "runtime/comm/mpi/window.h"

#include <mpi.h>

#include <mutex>

#include "runtime/base/handle.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"

namespace rondo {
namespace {

struct GroupTraits {
  static MPI_Group empty() { return MPI_GROUP_NULL; }
  static void destroy(MPI_Group group) { MPI_Group_free(&group); }
};
using GroupHandle = Handle<MPI_Group, GroupTraits>;

constexpr int kTag = 7;

}  // namespace

std::byte* allocate_window(MpiSession& session, std::span<const int> ranks, int64_t bytes) {
  const std::lock_guard lock(session.lock());
  MPI_Group group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &group), "MPI_Comm_group");
  const GroupHandle world(group);
  check_mpi(MPI_Group_incl(world.get(), static_cast<int>(ranks.size()), ranks.data(), &group),
            "MPI_Group_incl");
  const GroupHandle members(group);
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members.get(), kTag, &comm), "MPI_Comm_create_group");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  // All of it is the first one's: whose the pages are decides who touches them first.
  void* data = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  check_mpi(MPI_Win_allocate_shared(rank == 0 ? bytes : 0, 1, MPI_INFO_NULL, comm, static_cast<void*>(&data),
                                    &window),
            "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  check_mpi(MPI_Win_shared_query(window, 0, &size, &unit, static_cast<void*>(&data)), "MPI_Win_shared_query");
  return static_cast<std::byte*>(data);
}

}  // namespace rondo
