#include <algorithm>
#include <span>
#include <string>

#include "models/model.h"
#include "models/model_state.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"
#include "runtime/launch/world.h"

namespace rondo {
namespace {

std::string available(int ranks) {
  return ranks == 1 ? "0 (one rank)" : fmt::format("0 to {} (one per rank)", ranks - 1);
}

// Every rank is one device, numbered as the ranks are.
void check_gpus(const MultiGpuOptions& options, int ranks) {
  if (!options.gpus) return;
  std::vector<int> ids;
  if (const int* count = std::get_if<int>(&*options.gpus)) {
    if (*count == 0) return;  // Keras: as if it were not given
    require(*count >= 2,
            "multi_gpu_model needs gpus >= 2 when it is given, got {}; leave it out to use all {} ranks",
            *count, ranks);
    for (int id = 0; id < *count; ++id) ids.push_back(id);
  } else {
    ids = std::get<std::vector<int>>(*options.gpus);
    if (ids.empty()) return;
    require(ids.size() >= 2, "multi_gpu_model needs at least 2 gpus when they are listed, got {}",
            ids.size());
  }
  for (const int id : ids) {
    require(
        id >= 0 && id < ranks,
        "multi_gpu_model expects the devices {} to {}, but device {} does not exist; available: {}. Ask for "
        "fewer gpus or start more ranks",
        *std::min_element(ids.begin(), ids.end()), *std::max_element(ids.begin(), ids.end()), id,
        available(ranks));
  }
  std::sort(ids.begin(), ids.end());
  require(std::adjacent_find(ids.begin(), ids.end()) == ids.end(),
          "multi_gpu_model: a device is listed twice");
  require(static_cast<int>(ids.size()) == ranks,
          "multi_gpu_model over {} of {} ranks: start as many ranks as devices, or leave gpus out",
          ids.size(), ranks);
}

}  // namespace

struct ModelAccess {
  static Model parallel(const Model& model, Communicator& comm, std::span<KernelBackend* const> backends) {
    ModelState& original = *model.state_;
    auto state = std::make_shared<ModelState>();
    state->name = original.name;
    state->sequential = original.sequential;
    state->shared = original.shared;
    state->comm = &comm;
    original.shared->world = &comm;
    // Weights lie in one place: the template's where it has been used already.
    original.bind(std::make_shared<ModelHome>(*backends.front(), backends.subspan(1)));
    const KernelBackend& place = *original.home->backend;
    require(can_share(place, *backends.front()),
            "model \"{}\" has been used on {} and its weights are there: make it parallel on {} before "
            "anything else is done with it",
            original.name, place.device().name(), backends.front()->device().name());
    state->home = original.home;
    return Model(std::move(state));
  }
};

Model multi_gpu_model(const Model& model, Communicator& comm, KernelBackend& backend,
                      const MultiGpuOptions& options) {
  KernelBackend* const only = &backend;
  return multi_gpu_model(model, comm, std::span(&only, 1), options);
}

Model multi_gpu_model(const Model& model, Communicator& comm, std::span<KernelBackend* const> backends,
                      const MultiGpuOptions& options) {
  require(!backends.empty(), "multi_gpu_model needs the backend of at least one device");
  check_gpus(options, comm.size());
  return ModelAccess::parallel(model, comm, backends);
}

Model multi_gpu_model(const Model& model, World& world, const MultiGpuOptions& options) {
  return multi_gpu_model(model, world.device_comm(), world.backends(), options);
}

}  // namespace rondo
