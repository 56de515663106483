// Where an optimizer's state lies in a file: in .h5 below /optimizer_weights, listed by its attribute
// weight_names; in a .keras archive numbered in /optimizer/vars. Keras goes by order, not by names, and so do
// we.
#pragma once

#include <string>

#include "models/keras/dialect.h"
#include "models/keras/file_content.h"
#include "models/optimizer_state.h"
#include "runtime/optim/optimizer.h"

namespace rondo {
class Graph;
}

namespace rondo::keras {

// As tf.keras 2.10: "Adam/iter:0", then the first slot of every weight, then the second one, ...; optimizers
// that it does not have (has_new_form) as tf.keras 2.11.
void put_optimizer(Group& group, const OptimizerConfig& config, const OptimizerState& state);

// In that order, or in that of tf.keras 2.11 to 2.18, which lists both slots of a weight together (m and v;
// those of RMSprop and amsgrad's third one stay apart). Throws FileError for a list that cannot be the state
// of `config`.
OptimizerState take_optimizer(const Group& group, const OptimizerConfig& config, const std::string& where);

// As the .keras archives of the dialect: the number of updates, Keras 3's learning rate, the slots in the
// order of tf.keras 2.11, Keras 3's product of Nadam's momenta. tf.keras has a momentum for SGD without one.
void put_archive_optimizer(Group& root, const OptimizerConfig& config, const OptimizerState& state,
                           const Graph& graph, KerasDialect dialect);
// From either. `group` is /optimizer/vars.
OptimizerState take_archive_optimizer(const Group& group, const OptimizerConfig& config,
                                      const std::string& where);

}  // namespace rondo::keras
