// How a model was compiled, as files of Keras say it.
#pragma once

#include <string>
#include <vector>

#include "models/graph/config.h"
#include "models/keras/dialect.h"
#include "models/losses/config.h"
#include "runtime/optim/optimizer.h"

namespace rondo::keras {

struct TrainingConfig {
  OptimizerConfig optimizer = RMSprop{};
  OutputLosses loss = {};
  LossWeights loss_weights = {};
  OutputMetrics metrics = {};  // files keep the names of metrics
  OutputMetrics weighted_metrics = {};
};

// The attribute training_config of .h5 files.
ConfigValue training_config(const TrainingConfig& training, KerasDialect dialect);
// The compile_config of .keras archives.
ConfigValue compile_config(const TrainingConfig& training);

// Reads training_config of .h5 files and compile_config of .keras archives, in the dialects of Keras 2.2 up
// to 3; losses, their weights and metrics also as lists over the outputs and by their names. Throws FileError
// for what has no counterpart here: other optimizers, losses with settings of their own.
TrainingConfig training_from(const ConfigView& view);

}  // namespace rondo::keras
