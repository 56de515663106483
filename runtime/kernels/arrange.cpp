#include "runtime/kernels/arrange.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace rondo {

PermuteSpec reverse(const PermuteSpec& spec) {
  PermuteSpec back{.input = {output_shape(spec), spec.input.dtype, {}}, .axes = spec.axes};
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    back.axes[static_cast<size_t>(spec.axes[i])] = static_cast<int>(i);
  }
  if (spec.reversed >= 0) back.reversed = spec.axes[static_cast<size_t>(spec.reversed)];
  return back;
}

Shape output_shape(const PermuteSpec& spec) {
  const Shape& in = spec.input.shape;
  std::vector<int> sorted = spec.axes;
  std::sort(sorted.begin(), sorted.end());
  bool whole = static_cast<int>(sorted.size()) == in.rank();
  for (size_t i = 0; whole && i < sorted.size(); ++i) whole = sorted[i] == static_cast<int>(i);
  require(whole, "permute: the axes must be a permutation of those of {}", in.text());
  require(spec.reversed >= -1 && spec.reversed < in.rank(), "permute {}: there is no axis {} to reverse",
          in.text(), spec.reversed);
  std::vector<int64_t> extents;
  for (const int axis : spec.axes) extents.push_back(in[axis]);
  return Shape(extents);
}

Shape output_shape(const PadSpec& spec) {
  const Shape& in = spec.input.shape;
  require(in.rank() == 4, "pad reads (batch, height, width, channels), got {}", in.text());
  for (const int64_t width : spec.padding) {
    require(width >= 0, "pad {}: padding must be at least 0, got {}", in.text(), width);
  }
  return {in[0], in[1] + spec.padding[0] + spec.padding[1], in[2] + spec.padding[2] + spec.padding[3], in[3]};
}

}  // namespace rondo
