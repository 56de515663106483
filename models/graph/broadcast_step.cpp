#include "models/graph/broadcast_step.h"

#include "models/graph/unary_step.h"
#include "runtime/base/error.h"
#include "runtime/kernels/broadcast.h"

namespace rondo {

Shape joined_shape(std::span<const Shape> inputs, const std::string& title) {
  std::vector<int64_t> extents(inputs[0].extents().begin(), inputs[0].extents().end());
  for (const Shape& input : inputs.subspan(1)) {
    bool fits = input.rank() == inputs[0].rank();
    for (int axis = 0; fits && axis < input.rank(); ++axis) {
      int64_t& extent = extents[static_cast<size_t>(axis)];
      fits = input[axis] == extent || input[axis] == 1 || extent == 1;
      if (extent == 1) extent = input[axis];
    }
    require(fits, "{} needs inputs of one shape, or with extents of 1, got {} and {}", title,
            inputs[0].text(), input.text());
  }
  return Shape(extents);
}

ValueId append_broadcast(PlanBuilder& builder, ValueId in, const Shape& shape, const std::string& name) {
  if (builder.desc(in).shape == shape) return in;
  const ValueId x = builder.canonical(in);
  auto& kernel = builder.own(builder.backend().broadcast({.input = builder.desc(x).shape, .output = shape}));
  const ValueId y = builder.add_value({.shape = shape}, name + " repeated");
  append_unary(builder, name + ": repeat", kernel, x, y, &BroadcastKernel::spread);
  builder.on_backward(y, [&builder, &kernel, x, name](Gradient gradient) {
    const ValueId result = builder.add_value(builder.desc(x), name + " repeated gradient");
    append_unary(builder, name + ": repeat gradient", kernel, gradient.id, result, &BroadcastKernel::sum);
    builder.add_gradient(x, {result, true});
  });
  return y;
}

std::vector<ValueId> append_broadcasts(PlanBuilder& builder, const Layer::Call& call) {
  std::vector<Shape> shapes;
  for (const ValueId input : call.inputs) shapes.push_back(builder.desc(input).shape);
  const Shape joined = joined_shape(shapes, call.name);
  std::vector<ValueId> inputs;
  for (const ValueId input : call.inputs) {
    // The kernel repeats float32.
    const bool repeated = builder.desc(input).shape != joined;
    const DType dtype = builder.desc(input).dtype;
    ValueId value = input;
    if (repeated) value = append_broadcast(builder, builder.in_type(input, DType::kF32), joined, call.name);
    inputs.push_back(repeated ? builder.in_type(value, dtype) : value);
  }
  return inputs;
}

}  // namespace rondo
