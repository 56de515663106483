#include "runtime/kernels/broadcast.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/kernels/constraint.h"

namespace rondo {

void check(const BroadcastSpec& spec) {
  bool fits = spec.input.rank() == spec.output.rank() && spec.input.elements() > 0;
  for (int axis = 0; fits && axis < spec.input.rank(); ++axis) {
    fits = spec.input[axis] == spec.output[axis] || spec.input[axis] == 1;
  }
  require(fits, "broadcast: {} cannot be repeated to {}: extents must agree or be 1", spec.input.text(),
          spec.output.text());
}

void check(const PreluSpec& spec) {
  bool fits = spec.input.rank() == spec.alpha.rank() + 1 && spec.input.elements() > 0;
  for (int axis = 0; fits && axis < spec.alpha.rank(); ++axis) {
    fits = spec.alpha[axis] == spec.input[axis + 1] || spec.alpha[axis] == 1;
  }
  require(fits, "PReLU: alpha of shape {} does not fit {}: extents must agree with a sample's or be 1",
          spec.alpha.text(), spec.input.text());
}

void check(const ConstraintSpec& spec) {
  const Constraint& c = spec.constraint;
  require(static_cast<bool>(c), "a constraint without a kind");
  require(std::isfinite(c.low) && std::isfinite(c.high) && c.low >= 0.0 && c.high >= c.low,
          "constraint: norms from {} to {} make no range", c.low, c.high);
  require(c.rate >= 0.0 && c.rate <= 1.0, "constraint: the rate must lie in [0, 1], got {}", c.rate);
  const int rank = spec.weights.rank();
  for (const int axis : c.axes) {
    require(c.kind == Constraint::Kind::kNonNeg || (axis >= -rank && axis < rank),
            "constraint: weights of shape {} have no axis {}", spec.weights.text(), axis);
  }
}

}  // namespace rondo
