#include "runtime/comm/host/shared.h"

#include <mpi.h>

#include <cstddef>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/comm/mpi/window.h"
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

class MpiWindows final : public SharedWindows {
 public:
  MpiWindows(std::shared_ptr<MpiSession> session, std::vector<int> ranks)
      : session_(std::move(session)), ranks_(std::move(ranks)) {}
  std::byte* make(std::span<const int> world_ranks, int64_t bytes) override {
    std::vector<int> members;
    for (const int rank : world_ranks) members.push_back(ranks_[static_cast<size_t>(rank)]);
    return allocate_window(*session_, members, bytes);
  }

 private:
  std::shared_ptr<MpiSession> session_;
  std::vector<int> ranks_;
};

}  // namespace

std::shared_ptr<SharedWindows> make_mpi_windows(std::shared_ptr<MpiSession> session, std::vector<int> ranks) {
  return std::make_shared<MpiWindows>(std::move(session), std::move(ranks));
}

std::unique_ptr<Communicator> share_memory(const std::shared_ptr<MpiSession>& session, Device& device,
                                           const HostOptions& options, bool progress_thread,
                                           std::string& reason) {
  const Topology topology =
      make_topology(options.hosts.empty() ? session->hosts() : options.hosts, session->rank());
  if (topology.hosts() > 1) return nullptr;  // see hierarchy.h
  MpiBootstrap ranks(*session);
  std::vector<int> everybody(static_cast<size_t>(session->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  try {
    return make_shared_communicator(ranks, topology, device,
                                    {.deadline = options.deadline,
                                     .progress_thread = progress_thread,
                                     .letter_bytes = options.costs.letter_bytes,
                                     .passing = options.passing,
                                     .windows = make_mpi_windows(session, std::move(everybody))},
                                    session);
  } catch (const Unavailable& error) {
    reason = error.what();
    return nullptr;
  }
}

}  // namespace rondo
