#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/tensor/shape.h"

namespace rondo {

// A window sliding over (height, width): what convolution and pooling share.
struct Window {
  std::array<int64_t, 2> size{1, 1};
  std::array<int64_t, 2> strides{1, 1};
  std::array<int64_t, 2> dilation{1, 1};
  bool same = false;
};

// Throws InvalidArgument (its text starts with `title`) for a padding that is neither "valid" nor "same",
// sizes, strides or dilations below 1, or both strides and dilation above 1.
Window make_window(const std::string& title, std::array<int64_t, 2> size, std::array<int64_t, 2> strides,
                   std::array<int64_t, 2> dilation, std::string_view padding);

// Output extents for an image (height, width, ...): "same" gives ceil(n / s), "valid" ceil((n - (k - 1) d) /
// s). Throws InvalidArgument when the window does not fit.
std::array<int64_t, 2> window_output(const Window& window, const Shape& image, const std::string& title);
// Top, bottom, left, right; the odd one after.
std::array<int64_t, 4> window_padding(const Window& window, const Shape& image);

}  // namespace rondo
