#include "runtime/launch/gpu_connect.h"

#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/comm/staged/staged_communicator.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"
#include "runtime/launch/binding.h"

namespace rondo {
namespace {

// The ranks that hold each GPU, in rank order; the error where several hold one. A rank says its GPUs'
// numbers, each on a line.
void check_unique(const Topology& topology, const std::vector<std::string>& uuids) {
  std::map<std::string, std::vector<int>> holders;
  for (size_t r = 0; r < uuids.size(); ++r) {
    std::istringstream lines(uuids[r]);
    for (std::string uuid; std::getline(lines, uuid);) holders[uuid].push_back(static_cast<int>(r));
  }
  for (const auto& [uuid, ranks] : holders) {
    if (ranks.size() < 2) continue;
    std::string names;
    for (const int rank : ranks) names += (names.empty() ? "" : ", ") + rank_name(topology, rank);
    raise<MismatchError>(
        "{} share one GPU ({}), and NCCL refuses that: start at most one rank for each GPU of a host, or "
        "pass "
        "--oversubscribe-gpus to exchange gradients through the hosts' memory",
        names, uuid);
  }
}

// Ranks of one host take GPUs by their place on it: they must see the same ones. Equal on all ranks of a
// host, not of the job.
void check_counts(const Topology& topology, const std::vector<std::string>& counts) {
  for (size_t r = 0; r < counts.size(); ++r) {
    for (size_t first = 0; first < r; ++first) {
      if (topology.host_of[first] != topology.host_of[r] || counts[first] == counts[r]) continue;
      raise<MismatchError>(
          "{} sees {} GPUs, but {} sees {}: give all ranks of a host the same CUDA_VISIBLE_DEVICES",
          rank_name(topology, static_cast<int>(first)), counts[first],
          rank_name(topology, static_cast<int>(r)), counts[r]);
    }
  }
}

GpuCommunicatorOptions communicator_options() {
  GpuCommunicatorOptions options;
  const char* check = std::getenv("RONDO_CHECK_COLLECTIVES");
  options.check_calls = check != nullptr && std::string_view(check) != "" && std::string_view(check) != "0";
  return options;
}

}  // namespace

std::unique_ptr<Communicator> connect_devices(Communicator& host, Binding& binding,
                                              const BindOptions& options) {
  const bool gpu = binding.gpus != nullptr;
  if (host.size() == 1) return gpu ? make_self_communicator(*binding.device) : nullptr;
  const std::array bound{Fact{"the device (--device)", gpu ? "a GPU" : "the host's cores" + binding.no_gpu},
                         Fact{"devices_per_rank", std::to_string(options.devices_per_rank)}};
  agree_on(host, bound);
  if (!gpu) return nullptr;
  const GpuVersions versions = binding.gpus->versions();
  const std::array facts{
      Fact{"NCCL's version", versions.nccl},
      Fact{"cuDNN's version", versions.cudnn},
      Fact{"cuBLAS' version", versions.cublas},
      Fact{"--oversubscribe-gpus", options.oversubscribe_gpus ? "yes" : "no"},
      Fact{"RONDO_CHECK_COLLECTIVES", communicator_options().check_calls ? "yes" : "no"},
  };
  agree_on(host, facts);
  std::string own = binding.gpu.uuid;
  for (const FurtherDevice& further : binding.further) own += "\n" + further.gpu.uuid;
  const std::vector<std::string> uuids = all_gather_strings(host, own);
  check_counts(host.topology(), all_gather_strings(host, std::to_string(binding.visible_gpus)));
  if (options.oversubscribe_gpus) return make_staged_communicator(host, *binding.device);
  check_unique(host.topology(), uuids);
  return binding.gpus->make_communicator(host, *binding.device, communicator_options());
}

}  // namespace rondo
