#include "runtime/kernels/geometry.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/pool.h"

namespace rondo {
namespace {

void check(const Conv2DSpec& spec) {
  require(spec.input.shape.rank() == 4, "conv2d reads (batch, height, width, channels), got {}",
          spec.input.shape.text());
  require(spec.input.elements() > 0, "conv2d needs at least one element, got {}", spec.input.shape.text());
  require(spec.filters > 0, "{}: the number of filters must be positive", describe(spec));
  require(spec.groups > 0 && spec.input.shape[3] % spec.groups == 0 && spec.filters % spec.groups == 0,
          "{}: {} groups must divide the {} channels and the filters", describe(spec), spec.groups,
          spec.input.shape[3]);
  for (size_t i = 0; i < 2; ++i) {
    require(spec.kernel_size[i] > 0 && spec.strides[i] > 0 && spec.dilation[i] > 0,
            "{}: kernel size, strides and dilation must be positive", describe(spec));
  }
  for (const auto padding : spec.padding) {
    require(padding >= 0, "{}: padding must not be negative", describe(spec));
  }
}

}  // namespace

std::string describe(const Conv2DSpec& spec) {
  return fmt::format("conv2d {} with {} filters {}x{}", spec.input.shape.text(), spec.filters,
                     spec.kernel_size[0], spec.kernel_size[1]);
}

Shape output_shape(const Conv2DSpec& spec) {
  check(spec);
  const auto& in = spec.input.shape;
  std::array<int64_t, 2> out{};
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t window = (spec.kernel_size[axis] - 1) * spec.dilation[axis] + 1;
    const int64_t room =
        in[1 + static_cast<int>(axis)] + spec.padding[2 * axis] + spec.padding[2 * axis + 1] - window;
    require(room >= 0, "{}: the window of {} is larger than the padded image", describe(spec), window);
    out[axis] = room / spec.strides[axis] + 1;
  }
  return Shape{in[0], out[0], out[1], spec.filters};
}

Shape kernel_shape(const Conv2DSpec& spec) {
  check(spec);
  return Shape{spec.kernel_size[0], spec.kernel_size[1], spec.input.shape[3] / spec.groups, spec.filters};
}

Shape output_shape(const Pool2DSpec& spec) {
  const auto& in = spec.input.shape;
  require(in.rank() == 4, "pool2d reads (batch, height, width, channels), got {}", in.text());
  std::array<int64_t, 2> out{};
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t window = spec.pool_size[axis], extent = in[1 + static_cast<int>(axis)];
    const int64_t before = spec.padding[2 * axis], after = spec.padding[2 * axis + 1];
    require(window > 0 && spec.strides[axis] > 0, "pool2d {}: window and strides must be positive",
            in.text());
    require(before >= 0 && after >= 0 && before < window && after < window,
            "pool2d {}: padding must be at least 0 and smaller than the window", in.text());
    require(extent + before + after >= window, "pool2d {}: the window of {} is larger than the padded image",
            in.text(), window);
    out[axis] = (extent + before + after - window) / spec.strides[axis] + 1;
  }
  return Shape{in[0], out[0], out[1], in[3]};
}

TensorDesc output_desc(const ConcatSpec& spec) {
  require(!spec.inputs.empty(), "concat needs at least one input");
  const Shape& first = spec.inputs[0].shape;
  const int axis = spec.axis < 0 ? spec.axis + first.rank() : spec.axis;
  require(axis >= 0 && axis < first.rank(), "concat: axis {} is outside of {}", spec.axis, first.text());
  std::array<int64_t, Shape::kMaxRank> extents{};
  std::copy(first.extents().begin(), first.extents().end(), extents.begin());
  extents[static_cast<size_t>(axis)] = 0;
  for (const auto& input : spec.inputs) {
    for (int i = 0; i < first.rank(); ++i) {
      require(input.shape.rank() == first.rank() && (i == axis || input.shape[i] == first[i]),
              "concat along axis {}: {} does not fit {}", spec.axis, input.shape.text(), first.text());
    }
    extents[static_cast<size_t>(axis)] += input.shape[axis];
  }
  const std::span<const int64_t> whole(extents.data(), static_cast<size_t>(first.rank()));
  return {Shape(whole), spec.inputs[0].dtype, {}};
}

}  // namespace rondo
