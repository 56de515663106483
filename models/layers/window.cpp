#include "models/layers/window.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace rondo {
namespace {

int64_t reach(const Window& window, size_t axis) {
  return (window.size[axis] - 1) * window.dilation[axis] + 1;
}

}  // namespace

Window make_window(const std::string& title, std::array<int64_t, 2> size, std::array<int64_t, 2> strides,
                   std::array<int64_t, 2> dilation, std::string_view padding) {
  const auto positive = [](const std::array<int64_t, 2>& pair) { return pair[0] > 0 && pair[1] > 0; };
  require(padding == "valid" || padding == "same", "{}: unknown padding \"{}\"; choose \"valid\" or \"same\"",
          title, padding);
  require(positive(size), "{} needs a window of at least 1 x 1, got {} x {}", title, size[0], size[1]);
  require(positive(strides), "{} needs strides of at least 1, got {} and {}", title, strides[0], strides[1]);
  require(positive(dilation), "{} needs dilations of at least 1, got {} and {}", title, dilation[0],
          dilation[1]);
  require(std::max(strides[0], strides[1]) == 1 || std::max(dilation[0], dilation[1]) == 1,
          "{}: strides and dilation cannot both be above 1", title);
  return {size, strides, dilation, padding == "same"};
}

std::array<int64_t, 2> window_output(const Window& window, const Shape& image, const std::string& title) {
  std::array<int64_t, 2> out{};
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t extent = image[static_cast<int>(axis)];
    const int64_t stride = window.strides[axis];
    const int64_t span = window.same ? extent : extent - reach(window, axis) + 1;
    require(
        span > 0,
        "{}: a window of {} (dilation included) does not fit into images of shape {}; use padding \"same\" "
        "or larger images",
        title, reach(window, axis), image.text());
    out[axis] = (span + stride - 1) / stride;
  }
  return out;
}

std::array<int64_t, 4> window_padding(const Window& window, const Shape& image) {
  std::array<int64_t, 4> padding{};
  if (!window.same) return padding;
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t extent = image[static_cast<int>(axis)];
    const int64_t stride = window.strides[axis];
    const int64_t out = (extent + stride - 1) / stride;
    const int64_t total = std::max<int64_t>((out - 1) * stride + reach(window, axis) - extent, 0);
    padding[2 * axis] = total / 2;
    padding[2 * axis + 1] = total - total / 2;
  }
  return padding;
}

}  // namespace rondo
