#pragma once

#include <string_view>

#include "models/graph/config.h"
#include "models/graph/regularizer.h"

namespace rondo {

// A regularizer under a key: absent, null, a name ("l2": 0.01) or an object of class L1, L2 or L1L2. Throws
// FileError for others and for factors below 0.
Regularizer regularizer_from(const ConfigView& config, std::string_view key);
// As tf.keras 2.x writes it; null for none.
ConfigValue regularizer_config(const Regularizer& regularizer);

}  // namespace rondo
