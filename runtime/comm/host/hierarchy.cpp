#include "runtime/comm/host/hierarchy.h"

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/host/shared.h"
#include "runtime/comm/shared/world.h"
#include "runtime/comm/topology.h"

namespace rondo {

int CommunicatorBootstrap::rank() const {
  return comm_.rank();
}

int CommunicatorBootstrap::size() const {
  return comm_.size();
}

void CommunicatorBootstrap::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  comm_
      .all_gather({mine.data(), static_cast<int64_t>(mine.size()), DType::kU8},
                  {all.data(), static_cast<int64_t>(all.size()), DType::kU8}, {.label = "shared memory"})
      .wait();
}

bool hierarchy_fits(const Topology& topology) {
  std::vector<int> ranks(static_cast<size_t>(topology.hosts()), 0);
  for (const int host : topology.host_of) ++ranks[static_cast<size_t>(host)];
  for (const int count : ranks) {
    if (count != ranks[0] || count < 2) return false;
  }
  return topology.hosts() > 1;
}

namespace {

// Runs `action` on every rank; true when it threw nowhere.
template <class Action>
bool succeeds_everywhere(Communicator& comm, const Action& action) {
  uint8_t failed = 0;
  try {
    action();
  } catch (const PeerError&) {
    throw;
  } catch (const Error&) {
    failed = 1;
  }
  const Span flag = span_of(std::span(&failed, 1));
  comm.all_reduce(flag, flag, ReduceOp::kMax, {.label = "shared memory"}).wait();
  return failed == 0;
}

int own_host(const HostGroup& group) {
  return group.topology.host_of[static_cast<size_t>(group.rank)];
}

// The ranks with this one's local index, in the order of the hosts.
HostGroup ranks_across(const HostGroup& group) {
  HostGroup across;
  across.mpi = group.mpi;
  across.context = group.context;
  std::vector<std::string> hosts;
  std::vector<int> seen(static_cast<size_t>(group.topology.hosts()), 0);  // members of each host so far
  for (int r = 0; r < group.size(); ++r) {
    const auto host = static_cast<size_t>(group.topology.host_of[static_cast<size_t>(r)]);
    if (seen[host]++ != group.topology.local_rank) continue;
    if (r == group.rank) across.rank = across.size();
    across.shown_as.push_back(r);
    across.world_ranks.push_back(group.world_ranks[static_cast<size_t>(r)]);
    hosts.push_back(group.topology.host_names[host]);
  }
  across.topology = make_topology(hosts, across.rank);
  across.most_on_a_host = most_ranks_on_a_host(group.topology);
  return across;
}

}  // namespace

std::shared_ptr<SharedWorld> join_hosts(const HostGroup& world, Communicator& flat,
                                        const std::shared_ptr<MpiSession>& session,
                                        SharedWorldOptions options) {
  const auto local = flat.split(own_host(world), world.rank);
  std::vector<int> members;
  for (int r = 0; r < world.size(); ++r) {
    if (world.topology.host_of[static_cast<size_t>(r)] == own_host(world)) {
      options.names.push_back(rank_name(world.topology, r));
      members.push_back(world.world_ranks[static_cast<size_t>(r)]);
    }
  }
  options.windows = make_mpi_windows(session, std::move(members));
  CommunicatorBootstrap bootstrap(*local);
  std::shared_ptr<SharedWorld> shared;
  const bool all = succeeds_everywhere(flat, [&] { shared = SharedWorld::join(bootstrap, options); });
  return all ? shared : nullptr;
}

std::unique_ptr<Hierarchy> make_hierarchy(const HostGroup& group, Communicator& flat,
                                          const std::shared_ptr<SharedWorld>& world,
                                          const std::vector<int>& local_ranks) {
  auto hierarchy = std::make_unique<Hierarchy>();
  hierarchy->across = ranks_across(group);
  hierarchy->local = flat.split(own_host(group), group.rank);
  std::vector<int> members;
  for (int r = 0; r < group.size(); ++r) {
    if (group.topology.host_of[static_cast<size_t>(r)] != own_host(group)) continue;
    members.push_back(local_ranks[static_cast<size_t>(group.world_ranks[static_cast<size_t>(r)])]);
  }
  CommunicatorBootstrap bootstrap(*hierarchy->local);
  const bool all = succeeds_everywhere(flat, [&] {
    hierarchy->scatter = std::make_unique<SharedGroup>(world, bootstrap, members);
    hierarchy->gather = std::make_unique<SharedGroup>(world, bootstrap, members);
  });
  return all ? std::move(hierarchy) : nullptr;
}

std::unique_ptr<SharedGroup> make_shared_set(const HostGroup& group, Communicator& flat,
                                             const std::shared_ptr<SharedWorld>& world,
                                             const std::vector<int>& local_ranks) {
  std::vector<int> members;
  for (const int rank : group.world_ranks) members.push_back(local_ranks[static_cast<size_t>(rank)]);
  CommunicatorBootstrap bootstrap(flat);
  try {
    return std::make_unique<SharedGroup>(world, bootstrap, std::move(members));
  } catch (const PeerError&) {
    throw;
  } catch (const Error&) {
    return nullptr;  // on every rank
  }
}

}  // namespace rondo
