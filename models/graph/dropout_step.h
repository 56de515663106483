#pragma once

#include <string>

#include "models/graph/plan_builder.h"

namespace rondo {

// Appends a dropout of `in` in training, with its gradient; else, and for a rate of 0, `in` itself. Every
// call takes a number of its own for its random draws, in graph order.
ValueId append_dropout(PlanBuilder& builder, ValueId in, float rate, const std::string& name);

}  // namespace rondo
