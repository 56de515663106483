// Where an optimizer's state lies in a .h5 file: below /optimizer_weights, listed by its attribute
// weight_names.
#pragma once

#include <string>

#include "models/keras/file_content.h"
#include "models/optimizer_state.h"
#include "runtime/optim/optimizer.h"

namespace rondo::keras {

// As tf.keras 2.10: "Adam/iter:0", then the first slot of every weight, then the second one, ...
void put_optimizer(Group& group, const OptimizerConfig& config, const OptimizerState& state);

// Keras goes by order, not by names, and so do we; that of tf.keras up to 2.10 and, for optimizers with two
// slots, that of 2.11 to 2.18, which lists both slots of a weight together. Throws FileError for a list that
// cannot be the state of `config`.
OptimizerState take_optimizer(const Group& group, const OptimizerConfig& config, const std::string& where);

}  // namespace rondo::keras
