#include "models/graph/activation_step.h"

#include "runtime/base/functors.h"
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
Gradient append_backward(PlanBuilder& builder, K& kernel, ValueId out, Gradient gradient,
                         const std::string& name) {
  const ValueId result = builder.gradient_value(kernel.desc(), gradient, name + " gradient");
  const Tensor& y = builder.tensor(out);
  const Tensor& dy = builder.tensor(gradient.id);
  const Tensor& dx = builder.tensor(result);
  builder.add_step({.name = name + ": activation gradient",
                    .kernel = &kernel,
                    .reads = {out, gradient.id},
                    .writes = {result},
                    .run = [&kernel, &y, &dy, &dx](const Execution& on) { kernel.backward(on, y, dy, dx); }});
  return {result, true};
}

template <class K>
ValueId append(PlanBuilder& builder, K& kernel, ValueId in, const std::string& name, bool aside) {
  const ValueId x = builder.in_layout(in, kernel.desc().layout);
  if (aside) return append_forward(builder, kernel, x, builder.add_value(kernel.desc(), name), name);
  const ValueId out =
      builder.may_overwrite(x) ? builder.overwrite(x, name) : builder.add_value(kernel.desc(), name);
  append_forward(builder, kernel, x, out, name);
  builder.keep(out);
  builder.on_backward(out, [&builder, &kernel, x, out, name](Gradient gradient) {
    builder.add_gradient(x, append_backward(builder, kernel, out, gradient, name));
  });
  return out;
}

ValueId append_kind(PlanBuilder& builder, ValueId in, ActivationKind kind, const std::string& name,
                    bool aside) {
  if (kind == ActivationKind::kLinear) return in;
  if (kind == ActivationKind::kSoftmax) {
    const ValueId x = builder.in_type(builder.canonical(in), DType::kF32);
    return append(builder, builder.own(builder.backend().softmax(builder.desc(x))), x, name, aside);
  }
  auto& kernel = builder.own(builder.backend().activation(*elementwise(kind), builder.desc(in)));
  return append(builder, kernel, in, name, aside);
}

}  // namespace

ValueId append_activation(PlanBuilder& builder, ValueId in, ActivationKind kind, const std::string& name) {
  return append_kind(builder, in, kind, name, false);
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
