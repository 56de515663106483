#pragma once

#include <array>

#include "runtime/kernels/kernel.h"

namespace rondo {

enum class Pooling : uint8_t { kMax, kAverage };

// Pooling on (batch, height, width, channels). Maximum pads with minus infinity; average divides by the real
// cells only (Keras). Global average pooling is a window as large as the image.
struct Pool2DSpec {
  TensorDesc input;
  Pooling pooling = Pooling::kMax;
  std::array<int64_t, 2> pool_size{2, 2};
  std::array<int64_t, 2> strides{2, 2};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, bottom, left, right
  Mode mode = Mode::kTraining;
};

// Remembers where the maxima were from a training forward until its backward.
class Pool2DKernel : public Kernel {
 public:
  virtual const TensorDesc& input() const = 0;
  virtual const TensorDesc& output() const = 0;
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& out) = 0;
  virtual void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) = 0;
};

}  // namespace rondo
