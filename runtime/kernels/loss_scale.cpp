#include "runtime/kernels/loss_scale.h"

#include "runtime/base/error.h"

namespace rondo {

void check_loss_scaling(const LossScaling& scaling) {
  require(std::isfinite(scaling.initial) && scaling.initial >= 1.0f,
          "the initial loss scale is {}; it must be a finite number of at least 1", scaling.initial);
  require(scaling.growth_steps > 0,
          "the loss scale grows after {} good steps; that must be a positive number", scaling.growth_steps);
}

}  // namespace rondo
