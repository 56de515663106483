#pragma once

#include <string>

#include "models/graph/activation_kind.h"
#include "models/graph/plan_builder.h"

namespace rondo {

// Appends an activation of `in`, in place where nobody else needs it, with its gradient. Linear gives `in`
// itself.
ValueId append_activation(PlanBuilder& builder, ValueId in, ActivationKind kind, const std::string& name);
// The same of an element-wise function with parameters.
ValueId append_activation(PlanBuilder& builder, ValueId in, const ActivationFunction& function,
                          const std::string& name);
// The same on the side: never in place, no gradient.
ValueId append_activation_copy(PlanBuilder& builder, ValueId in, ActivationKind kind,
                               const std::string& name);

// Within on_backward: the gradient in front of an activation that a kernel has fused behind its result `out`,
// laid out as `out`.
Gradient append_activation_gradient(PlanBuilder& builder, Activation activation, ValueId out,
                                    Gradient gradient, const std::string& name);

}  // namespace rondo
