// The kernel interface of an operator with weights, over LinearOperator: what convolution and dense share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/kernels/cpu/linear.h"

namespace rondo::cpu {

// `Interface` is Conv2DKernel or DenseKernel. The derived class fills in the descriptors.
template <class Interface>
class LinearKernel : public Interface {
 public:
  LinearKernel(std::shared_ptr<const Context> context, const LinearMaker& maker, const LinearOptions& options)
      : operator_(std::move(context), maker, options) {}

  int64_t scratch_bytes() const override { return operator_.scratch_bytes(); }
  std::string implementation() const override { return operator_.implementation(); }
  const TensorDesc& input() const override { return input_; }
  const TensorDesc& kernel() const override { return kernel_; }
  const TensorDesc& bias() const override { return bias_; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
               const Tensor& out) override {
    operator_.forward(on, in, kernel, bias, out);
  }
  void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                        const Tensor& grad_kernel, const Tensor& grad_bias) override {
    operator_.weight_gradient(on, in, grad_out, grad_kernel, grad_bias);
  }
  void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                      const Tensor& grad_in) override {
    operator_.input_gradient(on, grad_out, kernel, grad_in);
  }

 protected:
  LinearOperator operator_;
  TensorDesc input_, kernel_, bias_, output_;
};

}  // namespace rondo::cpu
