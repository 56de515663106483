#include "models/graph/activation_step.h"

#include "runtime/kernels/elementwise.h"

namespace rondo {
namespace {

template <class K>
ValueId append_forward(PlanBuilder& builder, K& kernel, ValueId in, ValueId out, const std::string& name) {
  const Tensor& from = builder.tensor(in);
  const Tensor& to = builder.tensor(out);
  builder.add_step({.name = name,
                    .kernel = &kernel,
                    .reads = {in},
                    .writes = {out},
                    .run = [&kernel, &from, &to](const Execution& on) { kernel.forward(on, from, to); }});
  return out;
}

template <class K>
Gradient append_backward(PlanBuilder& builder, K& kernel, ValueId kept, Gradient gradient,
                         const std::string& name) {
  const ValueId result = builder.gradient_value(kernel.desc(), gradient, name + " gradient");
  const Tensor& y = builder.tensor(kept);
  const Tensor& dy = builder.tensor(gradient.id);
  const Tensor& dx = builder.tensor(result);
  builder.add_step({.name = name + ": activation gradient",
                    .kernel = &kernel,
                    .reads = {kept, gradient.id},
                    .writes = {result},
                    .run = [&kernel, &y, &dy, &dx](const Execution& on) { kernel.backward(on, y, dy, dx); }});
  return {result, true};
}

// `from_input`: the gradient is made from the input, which must then stay as it is.
struct How {
  bool aside = false;
  bool from_input = false;
};

template <class K>
ValueId append(PlanBuilder& builder, K& kernel, ValueId in, const std::string& name, const How& how) {
  const ValueId x = builder.in_layout(in, kernel.desc().layout);
  if (how.aside) return append_forward(builder, kernel, x, builder.add_value(kernel.desc(), name), name);
  if (how.from_input) builder.keep(x);
  const ValueId out =
      builder.may_overwrite(x) ? builder.overwrite(x, name) : builder.add_value(kernel.desc(), name);
  append_forward(builder, kernel, x, out, name);
  if (!how.from_input) builder.keep(out);
  builder.on_backward(out, [&builder, &kernel, x, kept = how.from_input ? x : out, name](Gradient gradient) {
    builder.add_gradient(x, append_backward(builder, kernel, kept, gradient, name));
  });
  return out;
}

ValueId append_function(PlanBuilder& builder, ValueId in, const ActivationFunction& function,
                        const std::string& name, bool aside) {
  if (function.kind == Activation::kLinear) return in;
  builder.tensor(in);
  auto& kernel = builder.own(builder.backend().activation(function, builder.desc(in)));
  return append(builder, kernel, in, name, {aside, derived_from_input(function.kind)});
}

ValueId append_kind(PlanBuilder& builder, ValueId in, ActivationKind kind, const std::string& name,
                    bool aside) {
  if (kind == ActivationKind::kSoftmax) {
    const ValueId x = builder.in_type(builder.canonical(in), DType::kF32);
    return append(builder, builder.own(builder.backend().softmax(builder.desc(x))), x, name, {aside, false});
  }
  return append_function(builder, in, *elementwise(kind), name, aside);
}

}  // namespace

ValueId append_activation(PlanBuilder& builder, ValueId in, ActivationKind kind, const std::string& name) {
  return append_kind(builder, in, kind, name, false);
}

ValueId append_activation(PlanBuilder& builder, ValueId in, const ActivationFunction& function,
                          const std::string& name) {
  return append_function(builder, in, function, name, false);
}

ValueId append_activation_copy(PlanBuilder& builder, ValueId in, ActivationKind kind,
                               const std::string& name) {
  return append_kind(builder, in, kind, name, true);
}

Gradient append_activation_gradient(PlanBuilder& builder, Activation activation, ValueId out,
                                    Gradient gradient, const std::string& name) {
  if (activation == Activation::kLinear) return gradient;
  auto& kernel = builder.own(builder.backend().activation(activation, builder.desc(out)));
  const Layout& layout = kernel.desc().layout;
  const ValueId y = builder.in_layout(out, layout);
  const Gradient dy{builder.in_layout(gradient.id, layout), gradient.exclusive};
  const Gradient dx = append_backward(builder, kernel, y, dy, name);
  return {builder.in_layout(dx.id, builder.desc(out).layout), true};
}

}  // namespace rondo
