// Where the equivalence of ranks is tried: linked with host_place.cpp or gpu_place.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"

namespace rondo::test {

// What a rank trains on.
struct Place {
  std::unique_ptr<Device> device;
  std::unique_ptr<KernelBackend> backend;
  std::unique_ptr<Communicator> own_comm;  // where the host's does not serve
  Communicator* comm = nullptr;
};

// For a rank of the host's communicator.
Place make_place(Communicator& host);
// That are compared with one.
std::span<const int> numbers_of_ranks();

using Weights = std::vector<std::vector<float>>;

// ||a - b|| / ||b|| over all tensors.
inline double distance(const Weights& a, const Weights& b) {
  double difference = 0.0;
  double norm = 0.0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      const double x = static_cast<double>(a[i][j]);
      const double y = static_cast<double>(b[i][j]);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return std::sqrt(difference / norm);
}

}  // namespace rondo::test
