#pragma once

#include <string>
#include <vector>

#include "runtime/kernels/loss.h"

namespace rondo {

struct NamedMetric {
  std::string name;  // as reported: "accuracy"
  Metric metric = Metric::kSparseCategoricalAccuracy;
};

// What a network is trained on and measured by.
struct Objective {
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  std::vector<NamedMetric> metrics = {};
};

}  // namespace rondo
