#include "models/graph/dropout_step.h"

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
  const Tensor& from = builder.tensor(x);
  const Tensor& to = builder.tensor(y);
  builder.add_step({.name = name,
                    .kernel = &kernel,
                    .reads = {x},
                    .writes = {y},
                    .run = [&kernel, &from, &to](const Execution& on) { kernel.forward(on, from, to); }});
  builder.on_backward(y, [&builder, &kernel, x, name](Gradient gradient) {
    const ValueId result = builder.gradient_value(kernel.desc(), gradient, name + " gradient");
    const Tensor& dy = builder.tensor(gradient.id);
    const Tensor& dx = builder.tensor(result);
    builder.add_step({.name = name + ": gradient",
                      .kernel = &kernel,
                      .reads = {gradient.id},
                      .writes = {result},
                      .run = [&kernel, &dy, &dx](const Execution& on) { kernel.backward(on, dy, dx); }});
    builder.add_gradient(x, {result, true});
  });
  return y;
}

}  // namespace rondo
