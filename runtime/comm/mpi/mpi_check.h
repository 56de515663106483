// For the folders that call MPI: error codes and handles.
#pragma once

#include <mpi.h>

#include <string_view>

#include "runtime/base/handle.h"

namespace rondo {

// Throws PeerError with MPI's own text when `code` is an error. `what` names the call and its peer.
void check_mpi(int code, std::string_view what);

struct MpiCommTraits {
  static MPI_Comm empty() { return MPI_COMM_NULL; }
  static void destroy(MPI_Comm comm) { MPI_Comm_free(&comm); }
};
using MpiCommHandle = Handle<MPI_Comm, MpiCommTraits>;

}  // namespace rondo
