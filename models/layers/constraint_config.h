#pragma once

#include <string_view>

#include "models/graph/config.h"
#include "runtime/kernels/constraint.h"

namespace rondo {

// A constraint under a key: absent, null, a name ("max_norm", "NonNeg": with Keras' presets) or an object of
// class MaxNorm, NonNeg, UnitNorm or MinMaxNorm. Throws FileError for others and for limits that make no
// sense.
Constraint constraint_from(const ConfigView& config, std::string_view key);
// As tf.keras 2.x writes it; null for none.
ConfigValue constraint_config(const Constraint& constraint);

}  // namespace rondo
