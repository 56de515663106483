#pragma once

#include <optional>

#include "runtime/base/functors.h"
#include "runtime/kernels/kernel.h"

namespace rondo {

// out = activation(in * kernel + bias) on rows: in (rows, features), kernel (features, units), bias (units).
//
// An image (rows, height, width, channels) is accepted as input too and is read in the order of Keras'
// Flatten (height, width, channels), whatever its layout: flattening then costs nothing.
struct DenseSpec {
  TensorDesc input;
  int64_t units = 0;
  bool use_bias = true;
  Activation activation = Activation::kLinear;
  Mode mode = Mode::kTraining;
  bool input_gradient = true;
  int alignment = 64;  // of every operand's memory, in bytes; at least 4
  bool tf32 = false;   // float32 operands may be rounded to 10 bits of fraction, where the device gains by it
  std::optional<Layout> kernel_layout = {};
};

class DenseKernel : public Kernel {
 public:
  virtual const TensorDesc& input() const = 0;
  virtual const TensorDesc& kernel() const = 0;
  virtual const TensorDesc& bias() const = 0;
  virtual const TensorDesc& output() const = 0;
  // As in Conv2DKernel: gradients come before the activation, results overwrite, bias may be empty, and
  // computing in 16 bits.
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
                       const Tensor& out) = 0;
  virtual void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                                const Tensor& grad_kernel, const Tensor& grad_bias) = 0;
  virtual void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                              const Tensor& grad_in) = 0;
};

}  // namespace rondo
