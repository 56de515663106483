// Dense and Conv2D as steps: their kernels have one form.
#pragma once

#include <string>

#include "models/graph/activation_step.h"
#include "models/graph/layer.h"
#include "models/graph/plan_builder.h"
#include "runtime/base/functors.h"

namespace rondo {

// A step's operand that is not there.
inline const Tensor kNoTensor{};

struct LinearWeights {
  Weight* kernel = nullptr;
  Weight* bias = nullptr;  // null without bias
};

// What a step reads, where weights of 16 bits are among it.
std::vector<ValueId> with_operands(std::vector<ValueId> values,
                                   std::initializer_list<WeightOperand> operands);

namespace detail {

template <class K>
void append_weight_gradients(PlanBuilder& builder, K& kernel, Parameter& weights, Parameter* bias, ValueId x,
                             const Gradient& gradient, const std::string& name) {
  const Tensor& in = builder.tensor(x);
  const Tensor& dy = builder.tensor(gradient.id);
  const WeightGradient for_kernel = builder.begin_weight_gradient(weights);
  const WeightGradient for_bias =
      bias ? builder.begin_weight_gradient(*bias) : WeightGradient{&kNoTensor, -1};
  const Tensor& dw = *for_kernel.tensor;
  const Tensor& db = *for_bias.tensor;
  PlanStep step{
      .name = name + ": weight gradients", .kernel = &kernel, .reads = {x, gradient.id}, .writes = {}};
  for (const ValueId temporary : {for_kernel.temporary, for_bias.temporary}) {
    if (temporary >= 0) step.writes.push_back(temporary);
  }
  step.run = [&kernel, &in, &dy, &dw, &db](const Execution& on) {
    kernel.backward_weights(on, in, dy, dw, db);
  };
  builder.add_step(std::move(step));
  if (bias) builder.end_weight_gradient(*bias, for_bias);
  builder.end_weight_gradient(weights, for_kernel);
}

template <class K>
void append_linear_backward(PlanBuilder& builder, K& kernel, Parameter& weights, Parameter* bias, ValueId x,
                            const Gradient& gradient, const std::string& name) {
  if (weights.trainable) append_weight_gradients(builder, kernel, weights, bias, x, gradient, name);
  if (!builder.needs_gradient(x)) return;
  const WeightOperand operand = builder.weight_operand(weights, kernel.input().dtype);
  const ValueId result = builder.add_value(kernel.input(), name + " input gradient");
  const Tensor& dy = builder.tensor(gradient.id);
  const Tensor& w = *operand.tensor;
  const Tensor& dx = builder.tensor(result);
  builder.add_step(
      {.name = name + ": input gradient",
       .kernel = &kernel,
       .reads = with_operands({gradient.id}, {operand}),
       .writes = {result},
       .run = [&kernel, &dy, &w, &dx](const Execution& on) { kernel.backward_input(on, dy, w, dx); }});
  builder.add_gradient(x, {result, true});
}

}  // namespace detail

// out = fused(kernel(in)), where the kernel was made for `fused`.
template <class K>
ValueId append_linear(PlanBuilder& builder, K& kernel, const LinearWeights& weights, ValueId in,
                      Activation fused, const std::string& name) {
  const ValueId x = builder.in_layout(in, kernel.input().layout);
  const ValueId y = builder.add_value(kernel.output(), name);
  Parameter& kernel_parameter = builder.parameter(*weights.kernel, kernel.kernel());
  Parameter* bias_parameter = weights.bias ? &builder.parameter(*weights.bias, kernel.bias()) : nullptr;
  const Tensor& from = builder.tensor(x);
  const Tensor& to = builder.tensor(y);
  const WeightOperand w_operand = builder.weight_operand(kernel_parameter, kernel.input().dtype);
  const WeightOperand b_operand = bias_parameter
                                      ? builder.weight_operand(*bias_parameter, kernel.input().dtype)
                                      : WeightOperand{&kNoTensor};
  const Tensor& w = *w_operand.tensor;
  const Tensor& b = *b_operand.tensor;
  builder.add_step(
      {.name = name,
       .kernel = &kernel,
       .reads = with_operands({x}, {w_operand, b_operand}),
       .writes = {y},
       .run = [&kernel, &from, &w, &b, &to](const Execution& on) { kernel.forward(on, from, w, b, to); }});
  builder.keep(x);
  if (fused != Activation::kLinear) builder.keep(y);
  builder.on_backward(y, [&, bias_parameter, x, y, fused, name](Gradient gradient) {
    const Gradient before = append_activation_gradient(builder, fused, y, gradient, name);
    detail::append_linear_backward(builder, kernel, kernel_parameter, bias_parameter, x, before, name);
  });
  return y;
}

// What a layer's kernel applies behind itself, and what remains for a step of its own (softmax).
struct LinearActivation {
  Activation fused = Activation::kLinear;
  ActivationKind after = ActivationKind::kLinear;
};
LinearActivation split_activation(ActivationKind own, const Layer::Call& call);

}  // namespace rondo
