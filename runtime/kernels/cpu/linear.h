// What convolution and dense share: three phases (forward, gradient of the input, gradient of the weights),
// each a oneDNN primitive whose layouts must be chosen so that none falls to a reference implementation.
#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/functors.h"
#include "runtime/kernels/cpu/operation.h"

namespace rondo::cpu {

// Layouts of input, weights and output (or of their gradients).
struct LinearLayouts {
  MemoryDesc src;
  MemoryDesc weights;
  MemoryDesc dst;
};

using PrimitiveDesc = dnnl::primitive_desc_base;

// Makes the primitives of one operator. Candidates are tried in order.
class LinearMaker {
 public:
  virtual ~LinearMaker() = default;
  virtual std::vector<LinearLayouts> forward_candidates() const = 0;
  virtual std::vector<LinearLayouts> input_gradient_candidates(const LinearLayouts& forward) const;
  virtual std::vector<LinearLayouts> weight_gradient_candidates(const LinearLayouts& forward) const;
  // These throw dnnl::error where oneDNN has nothing for the layouts.
  virtual PrimitiveDesc forward(const LinearLayouts& layouts) const = 0;
  virtual PrimitiveDesc input_gradient(const LinearLayouts& layouts) const = 0;
  virtual PrimitiveDesc weight_gradient(const LinearLayouts& layouts) const = 0;
};

struct LinearOptions {
  std::string what;  // for messages: "conv2d (8, 28, 28, 1) with 32 filters"
  bool use_bias = true;
  bool training = true;
  bool input_gradient = true;
  std::optional<MemoryDesc> weights;  // imposed on the parameter
};

// Input, parameter and output lie as the forward primitive likes, unless the parameter's layout is imposed.
// Backward reads and writes the same layouts and uses shadow copies where oneDNN would be slow on them.
class LinearOperator {
 public:
  LinearOperator(std::shared_ptr<const Context> context, const LinearMaker& maker,
                 const LinearOptions& options);

  const LinearLayouts& layouts() const { return layouts_; }
  int64_t scratch_bytes() const;
  std::string implementation() const;

  void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
               const Tensor& out);
  void weight_gradient(const Execution& on, const Tensor& in, const Tensor& grad_out,
                       const Tensor& grad_kernel, const Tensor& grad_bias);
  void input_gradient(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                      const Tensor& grad_in);

 private:
  bool use_bias_;
  LinearLayouts layouts_;
  std::unique_ptr<Operation> forward_;
  std::unique_ptr<Operation> weight_gradient_;
  std::unique_ptr<Operation> input_gradient_;
};

// Attributes with the activation fused behind the operator.
dnnl::primitive_attr fused_attributes(Activation activation);

}  // namespace rondo::cpu
