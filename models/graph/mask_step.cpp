#include "models/graph/mask_step.h"

#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/mask.h"

namespace rondo {
namespace {

// A mask that is not there.
const Tensor kNoMask{};

// `shape` is (rows, positions..., features).
MaskSpec spec_of(const Shape& shape, bool by_element = false) {
  const int64_t features = by_element ? 1 : shape[shape.rank() - 1];
  return {.rows = shape[0], .positions = shape.elements() / (shape[0] * features), .features = features};
}

void append_scale_step(PlanBuilder& builder, MaskKernel& kernel, ValueId in, ValueId factors, ValueId out,
                       const std::string& name) {
  const Tensor& x = builder.tensor(in);
  const Tensor& by = builder.tensor(factors);
  const Tensor& y = builder.tensor(out);
  builder.add_step({.name = name,
                    .kernel = &kernel,
                    .reads = {in, factors},
                    .writes = {out},
                    .run = [&kernel, &x, &by, &y](const Execution& on) { kernel.scale(on, x, by, y); }});
}

}  // namespace

ValueId append_find_mask(PlanBuilder& builder, ValueId in, float value, bool by_element,
                         const std::string& name) {
  const ValueId x = builder.canonical(in);
  const Shape& shape = builder.desc(x).shape;
  auto& kernel = builder.own(builder.backend().mask(spec_of(shape, by_element)));
  std::vector<int64_t> extents(shape.extents().begin(), shape.extents().end());
  if (!by_element) extents.pop_back();
  const ValueId mask = builder.add_value({.shape = Shape(extents)}, name + " mask");
  const Tensor& from = builder.tensor(x);
  const Tensor& to = builder.tensor(mask);
  builder.add_step(
      {.name = name + ": mask",
       .kernel = &kernel,
       .reads = {x},
       .writes = {mask},
       .run = [&kernel, &from, &to, value](const Execution& on) { kernel.find(on, from, value, to); }});
  builder.keep(mask);
  return mask;
}

ValueId append_mask_scale(PlanBuilder& builder, ValueId in, ValueId factors, const std::string& name) {
  const ValueId x = builder.canonical(in);
  auto& kernel = builder.own(builder.backend().mask(spec_of(builder.desc(x).shape)));
  const ValueId y = builder.add_value(builder.desc(x), name + " masked");
  append_scale_step(builder, kernel, x, factors, y, name + ": apply mask");
  builder.keep(factors);
  builder.on_backward(y, [&builder, &kernel, x, factors, name](Gradient gradient) {
    const ValueId result = builder.gradient_value(builder.desc(x), gradient, name + " masked gradient");
    append_scale_step(builder, kernel, gradient.id, factors, result, name + ": mask gradient");
    builder.add_gradient(x, {result, true});
  });
  return y;
}

ValueId append_mask_and(PlanBuilder& builder, ValueId a, ValueId b, const std::string& name) {
  if (a < 0 || b < 0 || a == b) return a < 0 ? b : a;
  const TensorDesc desc = builder.desc(a);
  require(builder.desc(b) == desc, "{} joins masks of shapes {} and {}: they must be alike", name,
          desc.shape.sample().text(), builder.desc(b).shape.sample().text());
  auto& kernel = builder.own(builder.backend().binary({.desc = desc, .function = Binary::kMultiply}));
  const ValueId mask = builder.add_value(desc, name + " mask");
  const Tensor& x = builder.tensor(a);
  const Tensor& y = builder.tensor(b);
  const Tensor& to = builder.tensor(mask);
  builder.add_step({.name = name + ": join masks",
                    .kernel = &kernel,
                    .reads = {a, b},
                    .writes = {mask},
                    .run = [&kernel, &x, &y, &to](const Execution& on) { kernel.forward(on, x, y, to); }});
  builder.keep(mask);
  return mask;
}

void join_masks(PlanBuilder& builder, const Layer::Call& call) {
  if (!call.masked()) return;
  ValueId all = -1;
  for (const ValueId mask : call.masks) all = append_mask_and(builder, all, mask, call.name);
  *call.mask = all;
}

ValueId append_mask_shares(PlanBuilder& builder, ValueId mask, const std::string& name) {
  const TensorDesc desc = builder.desc(mask);
  auto& kernel = builder.own(builder.backend().mask(spec_of(desc.shape, true)));
  const ValueId shares = builder.add_value(desc, name + " mask shares");
  const Tensor& from = builder.tensor(mask);
  const Tensor& to = builder.tensor(shares);
  builder.add_step({.name = name + ": mask shares",
                    .kernel = &kernel,
                    .reads = {mask},
                    .writes = {shares},
                    .run = [&kernel, &from, &to](const Execution& on) { kernel.shares(on, from, to); }});
  return shares;
}

ValueId append_hide_scores(PlanBuilder& builder, ValueId scores, ValueId query_mask, ValueId key_mask,
                           const std::string& name) {
  const ValueId x = builder.canonical(scores);
  const TensorDesc desc = builder.desc(x);
  const Shape& shape = desc.shape;
  auto& kernel = builder.own(builder.backend().score_mask(
      {.rows = shape[0], .heads = shape[1], .queries = shape[2], .keys = shape[3]}));
  const ValueId y = builder.add_value(desc, name);
  const Tensor& from = builder.tensor(x);
  const Tensor& to = builder.tensor(y);
  const Tensor& queries = query_mask >= 0 ? builder.tensor(query_mask) : kNoMask;
  const Tensor& keys = key_mask >= 0 ? builder.tensor(key_mask) : kNoMask;
  PlanStep step{.name = name,
                .kernel = &kernel,
                .reads = {x},
                .writes = {y},
                .run = [&kernel, &from, &queries, &keys, &to](const Execution& on) {
                  kernel.hide(on, from, queries, keys, to);
                }};
  for (const ValueId mask : {query_mask, key_mask}) {
    if (mask >= 0) step.reads.push_back(mask);
  }
  builder.add_step(std::move(step));
  builder.on_backward(y, [&builder, x](Gradient gradient) { builder.add_gradient(x, gradient); });
  return y;
}

}  // namespace rondo
