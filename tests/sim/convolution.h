// Convolutions of images (n, height, width, channels) with filters (filters, height, width, channels /
// groups).
#pragma once

#include <cstdint>
#include <vector>

namespace rondo::sim {

struct ConvolutionShape {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  int64_t filters = 0, kernel_height = 1, kernel_width = 1, groups = 1;
  int64_t pad_height = 0, pad_width = 0, stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1;

  int64_t out_height() const {
    return out(height, kernel_height, pad_height, stride_height, dilation_height);
  }
  int64_t out_width() const { return out(width, kernel_width, pad_width, stride_width, dilation_width); }
  int64_t positions() const { return out_height() * out_width(); }  // of an output image
  int64_t group_channels() const { return channels / groups; }
  int64_t group_filters() const { return filters / groups; }
  int64_t taps() const { return kernel_height * kernel_width * group_channels(); }

 private:
  static int64_t out(int64_t size, int64_t kernel, int64_t pad, int64_t stride, int64_t dilation) {
    return (size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
  }
};

// Each overwrites its result.
void convolve(const ConvolutionShape& shape, const float* x, const float* w, float* y);
void convolve_back_to_input(const ConvolutionShape& shape, const float* w, const float* dy, float* dx);
// The sum runs over the images from `first` on, around to the one before: other bits for another first.
void convolve_back_to_filters(const ConvolutionShape& shape, const float* x, const float* dy, float* dw,
                              int64_t first = 0);

}  // namespace rondo::sim
