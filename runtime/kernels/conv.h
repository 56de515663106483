#pragma once

#include <array>
#include <optional>

#include "runtime/base/functors.h"
#include "runtime/kernels/kernel.h"

namespace rondo {

// 2-D cross-correlation (what Keras calls convolution) on (batch, height, width, channels), with bias and an
// activation fused behind it.
struct Conv2DSpec {
  TensorDesc input;  // logical shape and the layout the producer offers
  int64_t filters = 0;
  std::array<int64_t, 2> kernel_size{1, 1};  // height, width
  std::array<int64_t, 2> strides{1, 1};
  std::array<int64_t, 2> dilation{1, 1};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, bottom, left, right
  int64_t groups = 1;
  bool use_bias = true;
  Activation activation = Activation::kLinear;
  Mode mode = Mode::kTraining;
  bool input_gradient = true;  // false for the first layer: backward_input is not prepared
  bool tf32 = false;  // float32 operands may be rounded to 10 bits of fraction, where the device gains by it
  std::optional<Layout> kernel_layout = {};  // imposed on the parameter; absent: the kernel chooses
};

// Computes in the type of its input. Where that has 16 bits, input and output and their gradients have it
// too, kernel() and bias() still describe the float32 parameters, forward and backward_input are given copies
// of those rounded to the input's type, in the same order, and gradients of parameters come out in float32.
class Conv2DKernel : public Kernel {
 public:
  virtual const TensorDesc& input()
      const = 0;  // the layout it reads: reorder to it where it differs from the offer
  virtual const TensorDesc& kernel() const = 0;  // (kh, kw, in / groups, filters)
  virtual const TensorDesc& bias() const = 0;    // (filters)
  virtual const TensorDesc& output() const = 0;  // gradients of input and output lie as input() and output()

  // `bias` is empty when use_bias is false.
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
                       const Tensor& out) = 0;
  // The gradient comes before the activation: the caller has run ActivationKernel::backward on it. Results
  // overwrite.
  virtual void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                                const Tensor& grad_kernel, const Tensor& grad_bias) = 0;
  virtual void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                              const Tensor& grad_in) = 0;
};

}  // namespace rondo
