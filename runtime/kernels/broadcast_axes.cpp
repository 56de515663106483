#include "runtime/kernels/broadcast_axes.h"

#include <algorithm>

namespace rondo::spread {
namespace {

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()), 1);
  for (int axis = shape.rank() - 1; axis-- > 0;) {
    strides[static_cast<size_t>(axis)] = strides[static_cast<size_t>(axis) + 1] * shape[axis + 1];
  }
  return strides;
}

}  // namespace

Repetition repetition(const Shape& small, const Shape& large) {
  const auto in_small = strides_of(small), in_large = strides_of(large);
  Repetition out;
  for (int axis = 0; axis < large.rank(); ++axis) {
    const auto i = static_cast<size_t>(axis);
    const bool repeats = small[axis] == 1 && large[axis] != 1;
    out.in_small.add(large[axis], repeats ? 0 : in_small[i]);
    if (repeats) out.repeated.add(large[axis], in_large[i]);
    out.kept.add(small[axis], in_large[i]);
  }
  return out;
}

Shape for_rows(const Shape& sample) {
  return sample.batched(1);
}

Norm norm_of(const ConstraintSpec& spec) {
  const Constraint& c = spec.constraint;
  const auto strides = strides_of(spec.weights);
  Norm norm{.kept = {},
            .group = {},
            .low = c.low,
            .high = c.high,
            .a = 1.0,
            .b = 0.0,
            .c = 0.0,
            .skip = nullptr,
            .w = nullptr};
  const int rank = spec.weights.rank();
  for (int axis = 0; axis < rank; ++axis) {
    const auto is_axis = [&](int each) { return each == axis || each + rank == axis; };
    const bool grouped = std::any_of(c.axes.begin(), c.axes.end(), is_axis);
    (grouped ? norm.group : norm.kept).add(spec.weights[axis], strides[static_cast<size_t>(axis)]);
  }
  if (c.kind == Constraint::Kind::kUnitNorm) {
    norm.a = 0.0;
    norm.c = 1.0;
  } else if (c.kind == Constraint::Kind::kMinMaxNorm) {
    norm.a = c.rate;
    norm.b = 1.0 - c.rate;
  } else {
    norm.low = 0.0;
  }
  return norm;
}

}  // namespace rondo::spread
