#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/models/equivalence_place.h"

namespace rondo::test {

Place make_place(Communicator& host) {
  auto device = make_cpu_device(1);
  auto backend = make_cpu_backend(*device);
  return {std::move(device), std::move(backend), nullptr, &host};
}

std::span<const int> numbers_of_ranks() {
  static constexpr int kNumbers[] = {2, 3, 4, 8};
  return kNumbers;
}

}  // namespace rondo::test
