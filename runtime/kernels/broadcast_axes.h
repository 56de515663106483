// What the kernels of every backend walk; see broadcast_rules.h.
#pragma once

#include "runtime/kernels/broadcast_rules.h"
#include "runtime/kernels/constraint.h"
#include "runtime/tensor/shape.h"

namespace rondo::spread {

// A tensor `small` that is repeated to `large` (extents agree or are 1).
struct Repetition {
  Axes in_small;        // large's axes, in small
  Axes kept, repeated;  // small's axes and those along which it is repeated, in large
};
Repetition repetition(const Shape& small, const Shape& large);

// The shape that a sample's factors have for whole batches: (1, ...).
Shape for_rows(const Shape& sample);

// Without the weights and the skip; for all kinds but kNonNeg.
Norm norm_of(const ConstraintSpec& spec);

}  // namespace rondo::spread
