#include "models/layers/prelu.h"

#include <array>

#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"
#include "runtime/kernels/broadcast.h"

namespace rondo {
namespace {

class PreluLayer final : public Layer {
 public:
  explicit PreluLayer(const layers::PReLU& options) : Layer(options.name), options_(options) {}
  std::string_view class_name() const override { return "PReLU"; }
  bool passes_mask() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("alpha_initializer", initializer_config(options_.alpha_initializer));
    config.set("alpha_regularizer", regularizer_config(options_.alpha_regularizer));
    config.set("alpha_constraint", constraint_config(options_.alpha_constraint));
    ConfigValue axes = nullptr;
    if (!options_.shared_axes.empty())
      axes = ConfigList(options_.shared_axes.begin(), options_.shared_axes.end());
    config.set("shared_axes", std::move(axes));
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    const int rank = inputs[0].rank();
    require(rank >= 1 && rank < Shape::kMaxRank, "{} needs samples of 1 to {} axes, got shape {}", title(),
            Shape::kMaxRank - 1, inputs[0].text());
    for (const int64_t axis : options_.shared_axes) {
      require(axis >= 1 && axis <= rank,
              "{}: samples of shape {} have no axis {} to share (they count from 1)", title(),
              inputs[0].text(), axis);
    }
    return inputs[0];
  }
  void build(std::span<const Shape> inputs) override {
    std::vector<int64_t> extents(inputs[0].extents().begin(), inputs[0].extents().end());
    for (const int64_t axis : options_.shared_axes) extents[static_cast<size_t>(axis) - 1] = 1;
    alpha_ = &add_weight("alpha", Shape(extents), options_.alpha_initializer);
    alpha_->regularizer = options_.alpha_regularizer;
    alpha_->constraint = options_.alpha_constraint;
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId x = builder.canonical(call.inputs[0]);
    auto& kernel =
        builder.own(builder.backend().prelu({.input = builder.desc(x).shape, .alpha = alpha_->shape}));
    const ValueId y = builder.add_value(builder.desc(x), call.name);
    Parameter& alpha = builder.parameter(*alpha_, {.shape = alpha_->shape});
    const Tensor& from = builder.tensor(x);
    const Tensor& to = builder.tensor(y);
    const Tensor& slope = alpha.value;
    builder.add_step(
        {.name = call.name,
         .kernel = &kernel,
         .reads = {x},
         .writes = {y},
         .run = [&kernel, &from, &slope, &to](const Execution& on) { kernel.forward(on, from, slope, to); }});
    builder.keep(x);
    builder.on_backward(y, [&builder, &kernel, &alpha, x, name = call.name](Gradient gradient) {
      append_backward(builder, kernel, alpha, x, gradient, name);
    });
    return y;
  }

 private:
  static void append_backward(PlanBuilder& builder, PreluKernel& kernel, Parameter& alpha, ValueId x,
                              const Gradient& gradient, const std::string& name) {
    const bool passes_on = builder.needs_gradient(x);
    const WeightGradient target =
        alpha.trainable ? builder.begin_weight_gradient(alpha) : WeightGradient{&kNoTensor, -1};
    const ValueId result = passes_on ? builder.add_value(builder.desc(x), name + " gradient") : -1;
    const Tensor& in = builder.tensor(x);
    const Tensor& dy = builder.tensor(gradient.id);
    const Tensor& slope = alpha.value;
    const Tensor& dx = passes_on ? builder.tensor(result) : kNoTensor;
    const Tensor& d_alpha = *target.tensor;
    PlanStep step{.name = name + ": gradient", .kernel = &kernel, .reads = {x, gradient.id}, .writes = {}};
    for (const ValueId written : {result, target.temporary}) {
      if (written >= 0) step.writes.push_back(written);
    }
    step.run = [&kernel, &in, &slope, &dy, &dx, &d_alpha](const Execution& on) {
      kernel.backward(on, in, slope, dy, dx, d_alpha);
    };
    builder.add_step(std::move(step));
    if (alpha.trainable) builder.end_weight_gradient(alpha, target);
    if (passes_on) builder.add_gradient(x, {result, true});
  }

  layers::PReLU options_;
  Weight* alpha_ = nullptr;
};

std::shared_ptr<Layer> prelu_from(const ConfigView& config) {
  layers::PReLU options{.alpha_initializer = initializer_from(config, "alpha_initializer", "zeros"),
                        .alpha_regularizer = regularizer_from(config, "alpha_regularizer"),
                        .alpha_constraint = constraint_from(config, "alpha_constraint"),
                        .name = config.string("name", "")};
  if (const auto axes = config.find("shared_axes")) {
    for (const ConfigView& axis : axes->list()) options.shared_axes.push_back(axis.integer());
  }
  return layers::make_layer(options);
}

constexpr std::array<LayerClass, 1> kClasses{{{"PReLU", &prelu_from}}};

}  // namespace

std::span<const LayerClass> prelu_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const PReLU& options) {
  return std::make_shared<PreluLayer>(options);
}

}  // namespace rondo
