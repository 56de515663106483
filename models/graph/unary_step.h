#pragma once

#include <functional>
#include <string>
#include <utility>

#include "models/graph/plan_builder.h"

namespace rondo {

// Appends a step that reads one value and writes another: `run` is a function of the kernel that takes the
// execution and the two tensors.
template <class K, class Run>
void append_unary(PlanBuilder& builder, std::string name, K& kernel, ValueId from, ValueId to, Run run) {
  const Tensor& in = builder.tensor(from);
  const Tensor& out = builder.tensor(to);
  builder.add_step(
      {.name = std::move(name),
       .kernel = &kernel,
       .reads = {from},
       .writes = {to},
       .run = [&kernel, &in, &out, run](const Execution& on) { std::invoke(run, kernel, on, in, out); }});
}

}  // namespace rondo
