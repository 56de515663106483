#include "runtime/comm/topology.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace rondo {

Topology make_topology(std::span<const std::string> host_names, int rank) {
  Topology topology;
  topology.local_size = 0;
  for (size_t r = 0; r < host_names.size(); ++r) {
    auto& hosts = topology.host_names;
    const auto found = std::find(hosts.begin(), hosts.end(), host_names[r]);
    topology.host_of.push_back(static_cast<int>(found - hosts.begin()));
    if (found == hosts.end()) hosts.push_back(host_names[r]);
    if (host_names[r] != host_names[static_cast<size_t>(rank)]) continue;
    if (static_cast<int>(r) < rank) ++topology.local_rank;
    ++topology.local_size;
  }
  return topology;
}

std::string rank_name(const Topology& topology, int rank) {
  const int host = topology.host_of.at(static_cast<size_t>(rank));
  return fmt::format("rank {} ({})", rank, topology.host_names.at(static_cast<size_t>(host)));
}

std::string this_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace rondo
