// What every optimizer's settings have in common. Internal to this folder.
#pragma once

#include "runtime/kernels/update.h"
#include "runtime/optim/optimizer.h"

namespace rondo {

const Schedule& schedule_of(const OptimizerConfig& config);
const Clipping& clipping_of(const OptimizerConfig& config);
double& learning_rate_of(OptimizerConfig& config);

double decay_of(const OptimizerConfig& config);
// Whether weight decay, and the step size of its own, leave this parameter out.
bool excludes(const OptimizerConfig& config, std::string_view parameter);
// What slots hold at first.
float initial_slot_value(const OptimizerConfig& config);

// Throws InvalidArgument that names the setting, its value and what is allowed.
void check_learning_rate(double rate);
void check_config(const OptimizerConfig& config);

// The update rule of a checked configuration.
UpdateSpec update_spec(const OptimizerConfig& config);

}  // namespace rondo
