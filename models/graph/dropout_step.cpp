#include "models/graph/dropout_step.h"

#include "models/graph/unary_step.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {

ValueId append_dropout(PlanBuilder& builder, ValueId in, float rate, const std::string& name) {
  const uint32_t stream = builder.next_dropout_stream();
  if (!builder.training() || rate == 0.0f) return in;
  builder.tensor(in);
  auto& kernel =
      builder.own(builder.backend().dropout({.desc = builder.desc(in), .rate = rate, .stream = stream}));
  const ValueId x = builder.in_layout(in, kernel.desc().layout);
  const ValueId y =
      builder.may_overwrite(x) ? builder.overwrite(x, name) : builder.add_value(kernel.desc(), name);
  append_unary(builder, name, kernel, x, y, &DropoutKernel::forward);
  builder.on_backward(y, [&builder, &kernel, x, name](Gradient gradient) {
    const ValueId result = builder.gradient_value(kernel.desc(), gradient, name + " gradient");
    append_unary(builder, name + ": gradient", kernel, gradient.id, result, &DropoutKernel::backward);
    builder.add_gradient(x, {result, true});
  });
  return y;
}

}  // namespace rondo
