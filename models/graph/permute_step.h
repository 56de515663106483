#pragma once

#include <string>
#include <vector>

#include "models/graph/plan_builder.h"

namespace rondo {

// Appends a permutation of the axes of `in`, batch included, with its gradient: axis i of the result is axis
// axes[i] of `in`; axis `reversed` of the result runs from the end.
ValueId append_permute(PlanBuilder& builder, ValueId in, const std::vector<int>& axes,
                       const std::string& name, int reversed = -1);

}  // namespace rondo
