// An optimizer's settings, as files of Keras say them.
#pragma once

#include <cstdint>

#include "models/graph/config.h"
#include "runtime/optim/optimizer.h"

namespace rondo::keras {

enum class OptimizerForm : uint8_t {
  kLegacy,    // of .h5 files of tf.keras
  kKeras3H5,  // of .h5 files of Keras 3
  kArchive,   // of .keras archives: with modules
};

// Whether the optimizer is one that tf.keras has since 2.11 only: AdamW, and the rules that were changed then
// (epsilon_inside, Nadam's schedule_decay of 1). In .h5 files they have a form of their own.
bool has_new_form(const OptimizerConfig& optimizer);

// Schedules are written as Keras' learning-rate schedules, `decay` in an archive as the InverseTimeDecay that
// it is. Keras has no warm-up in front of other schedules and none with an open length: the base rate stands
// for both. Keras from 2.11 on has only the new rules (see has_new_form) and applies them to an optimizer
// that an archive has of the old ones; we read back what was written.
ConfigValue optimizer_config(const OptimizerConfig& optimizer, OptimizerForm form);

// A name or an object of either form. Throws FileError for what has no counterpart here.
OptimizerConfig optimizer_from(const ConfigView& view);

}  // namespace rondo::keras
