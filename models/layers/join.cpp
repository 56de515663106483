#include "models/layers/join.h"

#include <array>

#include "models/graph/broadcast_step.h"
#include "models/graph/config.h"
#include "models/graph/mask_step.h"
#include "models/graph/plan_builder.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"

namespace rondo {
namespace {

// f(x, y), with its gradient. x and y lie alike.
ValueId append_binary(PlanBuilder& builder, const BinarySpec& spec, ValueId x, ValueId y,
                      const std::string& name) {
  auto& kernel = builder.own(builder.backend().binary(spec));
  const bool reads = spec.function != Binary::kWeightedSum;
  if (reads) {
    builder.keep(x);
    builder.keep(y);
  }
  const ValueId out = builder.add_value(kernel.desc(), name);
  const Tensor& a = builder.tensor(x);
  const Tensor& b = builder.tensor(y);
  const Tensor& to = builder.tensor(out);
  builder.add_step({.name = name,
                    .kernel = &kernel,
                    .reads = {x, y},
                    .writes = {out},
                    .run = [&kernel, &a, &b, &to](const Execution& on) { kernel.forward(on, a, b, to); }});
  builder.on_backward(out, [&builder, &kernel, reads, x, y, name](Gradient gradient) {
    const ValueId for_x = builder.gradient_value(kernel.desc(), gradient, name + " gradient");
    const ValueId for_y = builder.add_value(kernel.desc(), name + " gradient");
    const Tensor& in_x = reads ? builder.tensor(x) : kNoTensor;
    const Tensor& in_y = reads ? builder.tensor(y) : kNoTensor;
    const Tensor& dout = builder.tensor(gradient.id);
    const Tensor& dx = builder.tensor(for_x);
    const Tensor& dy = builder.tensor(for_y);
    PlanStep step{
        .name = name + ": gradient", .kernel = &kernel, .reads = {gradient.id}, .writes = {for_x, for_y}};
    if (reads) step.reads.insert(step.reads.end(), {x, y});
    step.run = [&kernel, &in_x, &in_y, &dout, &dx, &dy](const Execution& on) {
      kernel.backward(on, in_x, in_y, dout, dx, dy);
    };
    builder.add_step(std::move(step));
    builder.add_gradient(x, {for_x, true});
    builder.add_gradient(y, {for_y, true});
  });
  return out;
}

enum class Join : uint8_t { kMultiply, kAverage, kMaximum, kMinimum, kSubtract };
constexpr std::array<std::string_view, 5> kNames{"Multiply", "Average", "Maximum", "Minimum", "Subtract"};

// From the left: ((a, b), c), ...
class JoinLayer final : public Layer {
 public:
  JoinLayer(std::string name, Join join) : Layer(std::move(name)), join_(join) {}
  std::string_view class_name() const override { return kNames[static_cast<size_t>(join_)]; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (join_ == Join::kSubtract) require_inputs(inputs, 2);
    require(inputs.size() >= 2, "{} needs at least two inputs, got {}", title(), inputs.size());
    return joined_shape(inputs, title());
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    join_masks(builder, call);
    const std::vector<ValueId> inputs = append_broadcasts(builder, call);
    builder.tensor(inputs[0]);
    const TensorDesc desc = builder.desc(inputs[0]);
    const auto share = static_cast<float>(1.0 / static_cast<double>(call.inputs.size()));
    ValueId out = inputs[0];
    for (size_t i = 1; i < inputs.size(); ++i) {
      const ValueId next = builder.in_layout(inputs[i], desc.layout);
      out = append_binary(builder, spec(desc, i == 1, share), out, next, call.name);
    }
    return out;
  }

 private:
  // `share`: of each term of a mean.
  BinarySpec spec(const TensorDesc& desc, bool first, float share) const {
    switch (join_) {
      case Join::kMultiply:
        return {.desc = desc, .function = Binary::kMultiply};
      case Join::kMaximum:
        return {.desc = desc, .function = Binary::kMaximum};
      case Join::kMinimum:
        return {.desc = desc, .function = Binary::kMinimum};
      case Join::kSubtract:
        return {.desc = desc, .function = Binary::kWeightedSum, .a = 1.0f, .b = -1.0f};
      case Join::kAverage:
        break;
    }
    return {.desc = desc, .function = Binary::kWeightedSum, .a = first ? share : 1.0f, .b = share};
  }

  Join join_;
};

template <class Options>
std::shared_ptr<Layer> from(const ConfigView& config) {
  return layers::make_layer(Options{.name = config.string("name", "")});
}

constexpr std::array<LayerClass, 5> kClasses{{{"Multiply", &from<layers::Multiply>},
                                              {"Average", &from<layers::Average>},
                                              {"Maximum", &from<layers::Maximum>},
                                              {"Minimum", &from<layers::Minimum>},
                                              {"Subtract", &from<layers::Subtract>}}};

}  // namespace

std::span<const LayerClass> join_classes() {
  return kClasses;
}

namespace layers {

std::shared_ptr<Layer> make_layer(const Multiply& options) {
  return std::make_shared<JoinLayer>(options.name, Join::kMultiply);
}
std::shared_ptr<Layer> make_layer(const Average& options) {
  return std::make_shared<JoinLayer>(options.name, Join::kAverage);
}
std::shared_ptr<Layer> make_layer(const Maximum& options) {
  return std::make_shared<JoinLayer>(options.name, Join::kMaximum);
}
std::shared_ptr<Layer> make_layer(const Minimum& options) {
  return std::make_shared<JoinLayer>(options.name, Join::kMinimum);
}
std::shared_ptr<Layer> make_layer(const Subtract& options) {
  return std::make_shared<JoinLayer>(options.name, Join::kSubtract);
}

}  // namespace layers
}  // namespace rondo
