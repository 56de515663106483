#include "runtime/kernels/cpu/linear.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace rondo::cpu {
namespace {

MemoryDesc any_like(const MemoryDesc& desc) {
  return any_desc(desc.dims());
}

// The first candidate that is not a reference implementation; else the first that exists at all.
template <class Make>
PrimitiveDesc choose(const std::vector<LinearLayouts>& candidates, const std::string& what, Make make) {
  std::optional<PrimitiveDesc> reference;
  std::string reason = "no layout to try";
  for (const auto& layouts : candidates) {
    try {
      PrimitiveDesc desc = make(layouts);
      if (!is_reference(desc)) return desc;
      if (!reference) reference = desc;
    } catch (const dnnl::error& error) {
      reason = error.what();
    }
  }
  if (!reference) raise<Unavailable>("oneDNN has no implementation of {}: {}", what, reason);
  return *reference;
}

}  // namespace

std::vector<LinearLayouts> LinearMaker::input_gradient_candidates(const LinearLayouts& forward) const {
  const auto any_weights = any_like(forward.weights);
  return {forward,
          {forward.src, any_weights, forward.dst},
          {any_like(forward.src), any_weights, any_like(forward.dst)}};
}

std::vector<LinearLayouts> LinearMaker::weight_gradient_candidates(const LinearLayouts& forward) const {
  return input_gradient_candidates(forward);
}

dnnl::primitive_attr fused_attributes(Activation activation) {
  auto attributes = base_attributes();
  if (activation == Activation::kLinear) return attributes;
  const auto algorithm = activation == Activation::kRelu      ? dnnl::algorithm::eltwise_relu
                         : activation == Activation::kSigmoid ? dnnl::algorithm::eltwise_logistic
                                                              : dnnl::algorithm::eltwise_tanh;
  dnnl::post_ops behind;
  behind.append_eltwise(1.0f, algorithm, 0.0f, 0.0f);
  attributes.set_post_ops(behind);
  return attributes;
}

LinearOperator::LinearOperator(std::shared_ptr<const Context> context, const LinearMaker& maker,
                               const LinearOptions& options)
    : use_bias_(options.use_bias) {
  context->use_threads();
  const auto forward = choose(maker.forward_candidates(), options.what,
                              [&](const LinearLayouts& layouts) { return maker.forward(layouts); });
  layouts_ = {argument_desc(forward, DNNL_ARG_SRC), argument_desc(forward, DNNL_ARG_WEIGHTS),
              argument_desc(forward, DNNL_ARG_DST)};
  const LinearLayouts inside = layouts_;
  if (options.weights) layouts_.weights = *options.weights;

  std::vector<Operation::Operand> operands{{DNNL_ARG_SRC, layouts_.src},
                                           {DNNL_ARG_WEIGHTS, layouts_.weights}};
  if (use_bias_) operands.push_back({DNNL_ARG_BIAS, argument_desc(forward, DNNL_ARG_BIAS)});
  operands.push_back({DNNL_ARG_DST, layouts_.dst});
  forward_ = std::make_unique<Operation>(context, forward, operands);
  if (!options.training) return;

  const auto weights =
      choose(maker.weight_gradient_candidates(inside), "the weight gradient of " + options.what,
             [&](const LinearLayouts& layouts) { return maker.weight_gradient(layouts); });
  operands = {{DNNL_ARG_SRC, layouts_.src}, {DNNL_ARG_DIFF_DST, layouts_.dst}};
  operands.push_back({DNNL_ARG_DIFF_WEIGHTS, layouts_.weights});
  if (use_bias_) operands.push_back({DNNL_ARG_DIFF_BIAS, argument_desc(weights, DNNL_ARG_DIFF_BIAS)});
  weight_gradient_ = std::make_unique<Operation>(context, weights, operands);
  if (!options.input_gradient) return;

  const auto input = choose(maker.input_gradient_candidates(inside), "the input gradient of " + options.what,
                            [&](const LinearLayouts& layouts) { return maker.input_gradient(layouts); });
  operands = {{DNNL_ARG_DIFF_DST, layouts_.dst},
              {DNNL_ARG_WEIGHTS, layouts_.weights},
              {DNNL_ARG_DIFF_SRC, layouts_.src}};
  input_gradient_ = std::make_unique<Operation>(context, input, operands);
}

int64_t LinearOperator::scratch_bytes() const {
  int64_t bytes = 0;
  for (const auto* operation : {forward_.get(), weight_gradient_.get(), input_gradient_.get()}) {
    if (operation != nullptr) bytes = std::max(bytes, operation->scratch_bytes());
  }
  return bytes;
}

std::string LinearOperator::implementation() const {
  std::string text = "oneDNN " + forward_->implementation();
  if (weight_gradient_) text += ", weight gradient " + weight_gradient_->implementation();
  if (input_gradient_) text += ", input gradient " + input_gradient_->implementation();
  return text;
}

void LinearOperator::forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
                             const Tensor& out) {
  if (use_bias_) {
    forward_->execute(on, {in.data, kernel.data, bias.data, out.data});
  } else {
    forward_->execute(on, {in.data, kernel.data, out.data});
  }
}

void LinearOperator::weight_gradient(const Execution& on, const Tensor& in, const Tensor& grad_out,
                                     const Tensor& grad_kernel, const Tensor& grad_bias) {
  RONDO_CHECK(weight_gradient_ != nullptr);
  if (use_bias_) {
    weight_gradient_->execute(on, {in.data, grad_out.data, grad_kernel.data, grad_bias.data});
  } else {
    weight_gradient_->execute(on, {in.data, grad_out.data, grad_kernel.data});
  }
}

void LinearOperator::input_gradient(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                                    const Tensor& grad_in) {
  RONDO_CHECK(input_gradient_ != nullptr);
  input_gradient_->execute(on, {grad_out.data, kernel.data, grad_in.data});
}

}  // namespace rondo::cpu
