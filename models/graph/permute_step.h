#pragma once

#include <string>
#include <vector>

#include "models/graph/plan_builder.h"

namespace rondo {

// Appends a permutation of the axes of `in`, batch included, with its gradient: axis i of the result is axis
// axes[i] of `in`.
ValueId append_permute(PlanBuilder& builder, ValueId in, const std::vector<int>& axes,
                       const std::string& name);

}  // namespace rondo
