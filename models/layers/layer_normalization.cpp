#include "models/layers/layer_normalization.h"

#include <array>

#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"
#include "runtime/kernels/sequence.h"

namespace rondo {
namespace {

class LayerNormalizationLayer final : public Layer {
 public:
  explicit LayerNormalizationLayer(const layers::LayerNormalization& options)
      : Layer(options.name), options_(options) {
    require(options.epsilon > 0.0f, "{} needs an epsilon above 0, got {}", title(), options.epsilon);
  }
  std::string_view class_name() const override { return "LayerNormalization"; }
  bool passes_mask() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("axis", ConfigList{axis_});
    config.set("epsilon", options_.epsilon);
    config.set("center", options_.center);
    config.set("scale", options_.scale);
    config.set("beta_initializer", initializer_config(options_.beta_initializer));
    config.set("gamma_initializer", initializer_config(options_.gamma_initializer));
    config.set("beta_regularizer", regularizer_config(options_.beta_regularizer));
    config.set("gamma_regularizer", regularizer_config(options_.gamma_regularizer));
    config.set("beta_constraint", constraint_config(options_.beta_constraint));
    config.set("gamma_constraint", constraint_config(options_.gamma_constraint));
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 1, "{} needs samples with at least one axis, got shape {}", title(),
            inputs[0].text());
    require(options_.axis == -1 || options_.axis == inputs[0].rank(),
            "{} works on the last axis, {} for samples of shape {}; got axis {}", title(), inputs[0].rank(),
            inputs[0].text(), options_.axis);
    return inputs[0];
  }
  void build(std::span<const Shape> inputs) override {
    axis_ = inputs[0].rank();
    const Shape channels{inputs[0][inputs[0].rank() - 1]};
    if (options_.scale) {
      gamma_ = &add_weight("gamma", channels, options_.gamma_initializer);
      gamma_->regularizer = options_.gamma_regularizer;
      gamma_->constraint = options_.gamma_constraint;
    }
    if (options_.center) {
      beta_ = &add_weight("beta", channels, options_.beta_initializer);
      beta_->regularizer = options_.beta_regularizer;
      beta_->constraint = options_.beta_constraint;
    }
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId x = builder.canonical(call.inputs[0]);
    auto& kernel = builder.own(builder.backend().layer_norm({.input = builder.desc(x),
                                                             .epsilon = options_.epsilon,
                                                             .scale = options_.scale,
                                                             .center = options_.center,
                                                             .mode = builder.mode()}));
    const ValueId y = builder.add_value(kernel.desc(), call.name);
    Parameter* gamma = place(builder, gamma_);
    Parameter* beta = place(builder, beta_);
    const Tensor& from = builder.tensor(x);
    const Tensor& to = builder.tensor(y);
    const Tensor& g = gamma ? gamma->value : kNoTensor;
    const Tensor& b = beta ? beta->value : kNoTensor;
    builder.add_step(
        {.name = call.name,
         .kernel = &kernel,
         .reads = {x},
         .writes = {y},
         .run = [&kernel, &from, &g, &b, &to](const Execution& on) { kernel.forward(on, from, g, b, to); }});
    builder.keep(x);
    builder.on_backward(y, [&builder, &kernel, gamma, beta, x, name = call.name](Gradient gradient) {
      append_backward(builder, kernel, gamma, beta, x, gradient, name);
    });
    return y;
  }

 private:
  static Parameter* place(PlanBuilder& builder, Weight* weight) {
    return weight ? &builder.parameter(*weight, {.shape = weight->shape}) : nullptr;
  }
  static void append_backward(PlanBuilder& builder, LayerNormKernel& kernel, Parameter* gamma,
                              Parameter* beta, ValueId x, const Gradient& gradient, const std::string& name) {
    const auto begin = [&](Parameter* parameter) {
      return parameter && parameter->trainable ? builder.begin_weight_gradient(*parameter)
                                               : WeightGradient{&kNoTensor, -1};
    };
    const WeightGradient for_gamma = begin(gamma), for_beta = begin(beta);
    const ValueId result = builder.add_value(kernel.desc(), name + " gradient");
    const Tensor& in = builder.tensor(x);
    const Tensor& g = gamma ? gamma->value : kNoTensor;
    const Tensor& dy = builder.tensor(gradient.id);
    const Tensor& dx = builder.tensor(result);
    const Tensor& d_gamma = *for_gamma.tensor;
    const Tensor& d_beta = *for_beta.tensor;
    PlanStep step{
        .name = name + ": gradient", .kernel = &kernel, .reads = {x, gradient.id}, .writes = {result}};
    for (const ValueId temporary : {for_gamma.temporary, for_beta.temporary}) {
      if (temporary >= 0) step.writes.push_back(temporary);
    }
    step.run = [&kernel, &in, &g, &dy, &dx, &d_gamma, &d_beta](const Execution& on) {
      kernel.backward(on, in, g, dy, dx, d_gamma, d_beta);
    };
    builder.add_step(std::move(step));
    if (beta && beta->trainable) builder.end_weight_gradient(*beta, for_beta);
    if (gamma && gamma->trainable) builder.end_weight_gradient(*gamma, for_gamma);
    builder.add_gradient(x, {result, true});
  }

  layers::LayerNormalization options_;
  int axis_ = -1;  // the last one, with the batch as 0: known once built
  Weight* gamma_ = nullptr;
  Weight* beta_ = nullptr;
};

// The axis may be a number or a list of one.
std::shared_ptr<Layer> layer_normalization_from(const ConfigView& config) {
  int64_t axis = -1;
  if (const auto given = config.find("axis")) {
    const bool list = given->is_list() && given->list().size() == 1;
    axis = list ? given->list()[0].integer() : given->integer();
    if (axis < -1 || axis >= Shape::kMaxRank) given->fail("the last axis");
  }
  config.require_unset("rms_scaling");
  return layers::make_layer(
      layers::LayerNormalization{.axis = static_cast<int>(axis),
                                 .epsilon = config.real("epsilon", 1e-3f),
                                 .center = config.boolean("center", true),
                                 .scale = config.boolean("scale", true),
                                 .beta_initializer = initializer_from(config, "beta_initializer", "zeros"),
                                 .gamma_initializer = initializer_from(config, "gamma_initializer", "ones"),
                                 .beta_regularizer = regularizer_from(config, "beta_regularizer"),
                                 .gamma_regularizer = regularizer_from(config, "gamma_regularizer"),
                                 .beta_constraint = constraint_from(config, "beta_constraint"),
                                 .gamma_constraint = constraint_from(config, "gamma_constraint"),
                                 .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 1> kClasses{{{"LayerNormalization", &layer_normalization_from}}};

}  // namespace

std::span<const LayerClass> layer_normalization_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const LayerNormalization& options) {
  return std::make_shared<LayerNormalizationLayer>(options);
}

}  // namespace rondo
