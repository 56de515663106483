#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "models/graph/plan.h"
#include "runtime/base/precision.h"

namespace rondo {

class Graph;
class KernelBackend;
struct Objectives;

// What a plan is for.
enum class Purpose : uint8_t { kTrain, kEvaluate, kPredict };

struct PlanRequest {
  int64_t rows = 1;
  Purpose purpose = Purpose::kPredict;
  const Objectives* objective = nullptr;  // not for prediction
  double* const* sums = nullptr;          // read by every pass: where loss and metrics go, device memory
  bool reuse_memory = true;
  // Layers that can compute in it, the others in float32; so are losses, metrics and outputs.
  Precision precision = Precision::kF32;
};

// Compiles a graph: shapes and layouts fixed, kernels made, memory planned. Weights that no device holds yet
// are put on the backend's device in the layouts that this plan's kernels choose. Throws Unavailable where
// the backend does not compute in the precision. `backends` are those of the rank's devices; weights are put
// on the first, which `stream` belongs to, too. Throws InvalidArgument for a graph that is placed on more
// devices.
std::unique_ptr<Plan> compile_plan(const Graph& graph, std::span<KernelBackend* const> backends,
                                   Stream& stream, const PlanRequest& request);

}  // namespace rondo
