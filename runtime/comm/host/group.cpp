#include "runtime/comm/host/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>

#include "runtime/base/error.h"
#include "runtime/comm/mpi/mpi_check.h"

namespace rondo {
namespace {

void check(const HostGroup& group, int code, const char* call, int peer) {
  if (code != MPI_SUCCESS) check_mpi(code, fmt::format("{} {}", call, group.name_of(peer)));
}

int world(const HostGroup& group, int peer) {
  return group.world_ranks[static_cast<size_t>(peer)];
}

}  // namespace

std::string HostGroup::name_of(int member) const {
  if (shown_as.empty()) return rank_name(topology, member);
  const int host = topology.host_of[static_cast<size_t>(member)];
  return fmt::format("rank {} ({})", shown_as[static_cast<size_t>(member)],
                     topology.host_names[static_cast<size_t>(host)]);
}

int most_ranks_on_a_host(const Topology& topology) {
  std::vector<int> ranks(static_cast<size_t>(topology.hosts()), 0);
  for (const int host : topology.host_of) ++ranks[static_cast<size_t>(host)];
  return *std::max_element(ranks.begin(), ranks.end());
}

void start_send(const HostGroup& group, const void* data, int64_t bytes, int peer, int tag,
                MPI_Request& request) {
  RONDO_CHECK(bytes <= INT_MAX);
  check(group,
        MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, world(group, peer), tag, group.mpi, &request),
        "MPI_Isend to", peer);
}

void start_receive(const HostGroup& group, void* data, int64_t bytes, int peer, int tag,
                   MPI_Request& request) {
  RONDO_CHECK(bytes <= INT_MAX);
  check(group,
        MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, world(group, peer), tag, group.mpi, &request),
        "MPI_Irecv from", peer);
}

bool test(const HostGroup& group, MPI_Request& request, int peer, int64_t* received) {
  if (request == MPI_REQUEST_NULL) return true;
  int done = 0;
  MPI_Status status;
  check(group, MPI_Test(&request, &done, &status), "MPI_Test of a message with", peer);
  if (done != 0 && received != nullptr) {
    int bytes = 0;
    check(group, MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count of a message from", peer);
    *received = bytes;
  }
  return done != 0;
}

bool abandon_receive(MPI_Request& request) noexcept {
  if (request == MPI_REQUEST_NULL) return true;
  if (MPI_Cancel(&request) != MPI_SUCCESS) return false;
  int done = 0;
  // A receive that has no message yet ends at once; one in the middle of a message may never end.
  for (int attempt = 0; attempt < 100 && done == 0; ++attempt) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
  }
  return done != 0;
}

bool abandon_send(MPI_Request& request) noexcept {
  if (request == MPI_REQUEST_NULL) return true;
  int done = 0;
  if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) return true;
  MPI_Request_free(&request);
  return false;
}

}  // namespace rondo
