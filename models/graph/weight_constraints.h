#pragma once

#include <memory>
#include <vector>

#include "runtime/device/device.h"

namespace rondo {

class Graph;
class KernelBackend;
struct Execution;

// Brings the constrained weights of a graph back to what their constraints allow, in memory of its own where
// they do not lie in canonical order.
class WeightConstraints {
 public:
  // The graph's weights are on the backend's device. Throws InvalidArgument, naming the weight, for a
  // constraint that does not fit it.
  WeightConstraints(const Graph& graph, KernelBackend& backend);
  ~WeightConstraints();
  // Of trainable weights. Queued on on.stream; nothing is allocated.
  void run(const Execution& on) const;

 private:
  struct Step;
  std::vector<Step> steps_;
  Buffer canonical_;  // one weight at a time
  Buffer scratch_;
};

}  // namespace rondo
