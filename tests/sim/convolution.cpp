#include "tests/sim/convolution.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/numbers.h"

namespace rondo::sim {
namespace {

// Calls f(row of patches, place within it, first element of the image there) for every tap that lies in the
// image.
template <class F>
void each_tap(const ConvolutionShape& s, int64_t group, F&& f) {
  const int64_t depth = s.group_channels();
  const int64_t out_width = s.out_width();
  for (int64_t oy = 0; oy < s.out_height(); ++oy) {
    for (int64_t ox = 0; ox < out_width; ++ox) {
      for (int64_t ky = 0; ky < s.kernel_height; ++ky) {
        const int64_t y = oy * s.stride_height - s.pad_height + ky * s.dilation_height;
        if (y < 0 || y >= s.height) continue;
        for (int64_t kx = 0; kx < s.kernel_width; ++kx) {
          const int64_t x = ox * s.stride_width - s.pad_width + kx * s.dilation_width;
          if (x < 0 || x >= s.width) continue;
          f((oy * out_width + ox) * s.taps() + (ky * s.kernel_width + kx) * depth,
            (y * s.width + x) * s.channels + group * depth);
        }
      }
    }
  }
}

void gather(const ConvolutionShape& s, int64_t group, const float* image, std::vector<float>& patches) {
  patches.assign(static_cast<size_t>(s.positions() * s.taps()), 0.0f);
  const auto bytes = static_cast<size_t>(s.group_channels()) * sizeof(float);
  each_tap(s, group,
           [&](int64_t to, int64_t from) { std::memcpy(patches.data() + to, image + from, bytes); });
}

}  // namespace

void convolve(const ConvolutionShape& s, const float* x, const float* w, float* y) {
  std::vector<float> patches;
  for (int64_t n = 0; n < s.images; ++n) {
    for (int64_t g = 0; g < s.groups; ++g) {
      gather(s, g, x + n * s.height * s.width * s.channels, patches);
      multiply(s.positions(), s.group_filters(), s.taps(), {patches.data(), s.taps(), 1},
               {w + g * s.group_filters() * s.taps(), 1, s.taps()},
               y + n * s.positions() * s.filters + g * s.group_filters(), s.filters, false);
    }
  }
}

void convolve_back_to_input(const ConvolutionShape& s, const float* w, const float* dy, float* dx) {
  std::vector<float> patches(static_cast<size_t>(s.positions() * s.taps()));
  const int64_t image_size = s.height * s.width * s.channels;
  std::fill_n(dx, s.images * image_size, 0.0f);
  for (int64_t n = 0; n < s.images; ++n) {
    for (int64_t g = 0; g < s.groups; ++g) {
      multiply(s.positions(), s.taps(), s.group_filters(),
               {dy + n * s.positions() * s.filters + g * s.group_filters(), s.filters, 1},
               {w + g * s.group_filters() * s.taps(), s.taps(), 1}, patches.data(), s.taps(), false);
      float* image = dx + n * image_size;
      each_tap(s, g, [&](int64_t from, int64_t to) {
        for (int64_t c = 0; c < s.group_channels(); ++c)
          image[to + c] += patches[static_cast<size_t>(from + c)];
      });
    }
  }
}

void convolve_back_to_filters(const ConvolutionShape& s, const float* x, const float* dy, float* dw,
                              int64_t first) {
  std::vector<float> patches;
  for (int64_t i = 0; i < s.images; ++i) {
    const int64_t n = (first + i) % s.images;
    for (int64_t g = 0; g < s.groups; ++g) {
      gather(s, g, x + n * s.height * s.width * s.channels, patches);
      multiply(s.group_filters(), s.taps(), s.positions(),
               {dy + n * s.positions() * s.filters + g * s.group_filters(), 1, s.filters},
               {patches.data(), s.taps(), 1}, dw + g * s.group_filters() * s.taps(), s.taps(), i > 0);
    }
  }
}

}  // namespace rondo::sim
