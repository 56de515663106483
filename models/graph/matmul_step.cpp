#include "models/graph/matmul_step.h"

#include <vector>

#include "runtime/kernels/sequence.h"

namespace rondo {
namespace {

ValueId append(PlanBuilder& builder, const MatmulSpec& spec, ValueId a, ValueId b, const Shape& shape,
               const std::string& name) {
  auto& kernel = builder.own(builder.backend().matmul(spec));
  const ValueId out = builder.add_value({.shape = shape}, name);
  const Tensor& left = builder.tensor(a);
  const Tensor& right = builder.tensor(b);
  const Tensor& to = builder.tensor(out);
  builder.add_step(
      {.name = name,
       .kernel = &kernel,
       .reads = {a, b},
       .writes = {out},
       .run = [&kernel, &left, &right, &to](const Execution& on) { kernel.run(on, left, right, to); }});
  return out;
}

}  // namespace

ValueId append_matmul(PlanBuilder& builder, ValueId a, ValueId b, bool transpose_b, float alpha,
                      const std::string& name) {
  const ValueId x = builder.canonical(a), y = builder.canonical(b);
  const Shape &left = builder.desc(x).shape, &right = builder.desc(y).shape;
  const int rank = left.rank();
  const MatmulSpec spec{.batch = left.elements() / (left[rank - 2] * left[rank - 1]),
                        .rows = left[rank - 2],
                        .columns = right[transpose_b ? rank - 2 : rank - 1],
                        .inner = left[rank - 1],
                        .transpose_b = transpose_b,
                        .alpha = alpha,
                        .tf32 = builder.tf32()};
  std::vector<int64_t> extents(left.extents().begin(), left.extents().end());
  extents.back() = spec.columns;
  const ValueId out = append(builder, spec, x, y, Shape(extents), name);
  builder.keep(x);
  builder.keep(y);
  builder.on_backward(out, [&builder, spec, x, y, name](Gradient gradient) {
    const ValueId g = gradient.id;
    const Shape for_x = builder.desc(x).shape, for_y = builder.desc(y).shape;
    // da = alpha g b^T; db = alpha a^T g, or its transpose alpha g^T a.
    MatmulSpec left_spec = spec;
    left_spec.columns = spec.inner;
    left_spec.inner = spec.columns;
    left_spec.transpose_b = !spec.transpose_b;
    MatmulSpec right_spec{.batch = spec.batch,
                          .rows = spec.transpose_b ? spec.columns : spec.inner,
                          .columns = spec.transpose_b ? spec.inner : spec.columns,
                          .inner = spec.rows,
                          .transpose_a = true,
                          .alpha = spec.alpha,
                          .tf32 = spec.tf32};
    const ValueId dx = append(builder, left_spec, g, y, for_x, name + ": left gradient");
    const ValueId dy = append(builder, right_spec, spec.transpose_b ? g : x, spec.transpose_b ? x : g, for_y,
                              name + ": right gradient");
    builder.add_gradient(x, {dx, true});
    builder.add_gradient(y, {dy, true});
  });
  return out;
}

}  // namespace rondo
