#include <stdexcept>

#include "runtime/launch/gpu_loader.h"
#include "tests/models/equivalence_place.h"

namespace rondo::test {

// A GPU for each rank, sums over NCCL.
Place make_place(Communicator& host) {
  static const FoundGpus found = find_gpus();
  if (found.module == nullptr) throw std::runtime_error(found.reason);
  auto device = found.module->make_device(host.rank());
  auto backend = found.module->make_backend(*device);
  auto comm = found.module->make_communicator(host, *device, {});
  Communicator* const used = comm.get();
  return {std::move(device), std::move(backend), std::move(comm), used};
}

std::span<const int> numbers_of_ranks() {
  static constexpr int kNumbers[] = {2, 8};
  return kNumbers;
}

}  // namespace rondo::test
