#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/graph/layer.h"
#include "models/graph/plan_builder.h"

namespace rondo {

// The shape of what joins samples of these shapes element by element, where an extent of 1 is repeated.
// Throws InvalidArgument, beginning with `title`, where they do not fit.
Shape joined_shape(std::span<const Shape> inputs, const std::string& title);

// `in`, repeated along the axes in which it has the extent 1, to `shape` of as many axes (batch included),
// with its gradient; `in` itself where it has that shape.
ValueId append_broadcast(PlanBuilder& builder, ValueId in, const Shape& shape, const std::string& name);

// The inputs of a layer that joins them element by element, each with the result's shape.
std::vector<ValueId> append_broadcasts(PlanBuilder& builder, const Layer::Call& call);

}  // namespace rondo
