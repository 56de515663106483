#include "models/graph/permute_step.h"

#include "models/graph/unary_step.h"
#include "runtime/kernels/arrange.h"

namespace rondo {
namespace {

ValueId append(PlanBuilder& builder, const PermuteSpec& spec, ValueId x, const std::string& name) {
  auto& kernel = builder.own(builder.backend().permute(spec));
  const ValueId y = builder.add_value(kernel.output(), name);
  append_unary(builder, name, kernel, x, y, &PermuteKernel::run);
  return y;
}

}  // namespace

ValueId append_permute(PlanBuilder& builder, ValueId in, const std::vector<int>& axes,
                       const std::string& name, int reversed) {
  const ValueId x = builder.canonical(in);
  const PermuteSpec spec{.input = builder.desc(x), .axes = axes, .reversed = reversed};
  const ValueId y = append(builder, spec, x, name);
  builder.on_backward(y, [&builder, spec, x, name](Gradient gradient) {
    builder.add_gradient(x, {append(builder, reverse(spec), gradient.id, name + ": gradient"), true});
  });
  return y;
}

}  // namespace rondo
