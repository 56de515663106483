#include "runtime/comm/host/shared.h"

#include <mpi.h>

#include <cstddef>
#include <mutex>
#include <span>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/shared_communicator.h"
#include "runtime/comm/topology.h"

namespace rondo {
namespace {

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(MpiSession& session) : session_(session) {}
  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const std::lock_guard lock(session_.lock());
    const int bytes = static_cast<int>(mine.size());
    check_mpi(MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD),
              "MPI_Allgather");
  }

 private:
  MpiSession& session_;
};

}  // namespace

std::unique_ptr<Communicator> share_memory(const std::shared_ptr<MpiSession>& session, Device& device,
                                           const HostOptions& options, bool progress_thread,
                                           std::string& reason) {
  const Topology topology =
      make_topology(options.hosts.empty() ? session->hosts() : options.hosts, session->rank());
  if (topology.hosts() > 1) return nullptr;  // see hierarchy.h
  MpiBootstrap ranks(*session);
  try {
    return make_shared_communicator(
        ranks, topology, device, {.deadline = options.deadline, .progress_thread = progress_thread}, session);
  } catch (const Unavailable& error) {
    reason = error.what();
    return nullptr;
  }
}

}  // namespace rondo
