#pragma once

#include <string>

#include "models/graph/plan_builder.h"

namespace rondo {

// Appends alpha a b, or alpha a b^T, for each of the matrices in a (..., rows, inner) and b (..., inner,
// columns) or (..., columns, inner), with its gradient.
ValueId append_matmul(PlanBuilder& builder, ValueId a, ValueId b, bool transpose_b, float alpha,
                      const std::string& name);

}  // namespace rondo
