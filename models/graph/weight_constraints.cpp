#include "models/graph/weight_constraints.h"

#include <algorithm>

#include "models/graph/graph.h"
#include "runtime/base/error.h"
#include "runtime/device/allocate_for.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

struct WeightConstraints::Step {
  const Parameter* parameter = nullptr;
  std::unique_ptr<ConstraintKernel> constraint;
  std::unique_ptr<ReorderKernel> out, back;  // null where the weight lies in canonical order
};

WeightConstraints::WeightConstraints(const Graph& graph, KernelBackend& backend) {
  int64_t bytes = 0, scratch = 0;
  for (const Weight* weight : graph.weights()) {
    const Parameter& parameter = weight->parameter;
    if (!weight->constraint || !parameter.trainable) continue;
    Step step{.parameter = &parameter, .constraint = {}, .out = {}, .back = {}};
    try {
      step.constraint = backend.constraint({.constraint = weight->constraint, .weights = weight->shape});
    } catch (const InvalidArgument& error) {
      raise<InvalidArgument>("weight {}: {}", parameter.name, error.what());
    }
    if (!parameter.desc.layout.canonical()) {
      const TensorDesc plain{.shape = parameter.desc.shape, .dtype = parameter.desc.dtype};
      step.out = backend.reorder(parameter.desc, plain);
      step.back = backend.reorder(plain, parameter.desc);
      bytes = std::max(bytes, plain.bytes());
      scratch = std::max({scratch, step.out->scratch_bytes(), step.back->scratch_bytes()});
    }
    scratch = std::max(scratch, step.constraint->scratch_bytes());
    steps_.push_back(std::move(step));
  }
  if (bytes > 0) canonical_ = allocate_for(backend.device(), bytes, "constrained weights", {});
  if (scratch > 0) scratch_ = allocate_for(backend.device(), scratch, "work space of constraints", {});
}

WeightConstraints::~WeightConstraints() = default;

void WeightConstraints::run(const Execution& on) const {
  const Execution here{.stream = on.stream, .scratch = scratch_.data(), .state = on.state};
  for (const Step& step : steps_) {
    const Tensor& weights = step.parameter->value;
    if (!step.out) {
      step.constraint->run(here, weights);
      continue;
    }
    const Tensor plain{.desc = {.shape = weights.desc.shape, .dtype = weights.desc.dtype},
                       .data = canonical_.data()};
    step.out->run(here, weights, plain);
    step.constraint->run(here, plain);
    step.back->run(here, plain, weights);
  }
}

}  // namespace rondo
