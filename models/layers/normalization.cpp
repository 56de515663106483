#include "models/layers/normalization.h"

#include <array>

#include "models/graph/plan_builder.h"
#include "models/layers/config_parts.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"
#include "runtime/kernels/batch_norm.h"

namespace rondo {
namespace {

constexpr std::array kUnset{"beta_regularizer", "gamma_regularizer", "beta_constraint", "gamma_constraint"};

class BatchNormalizationLayer final : public Layer {
 public:
  explicit BatchNormalizationLayer(const layers::BatchNormalization& options)
      : Layer(options.name), options_(options) {
    require(options.momentum >= 0.0f && options.momentum <= 1.0f,
            "BatchNormalization needs a momentum in [0, 1], got {}", options.momentum);
    require(options.epsilon > 0.0f, "BatchNormalization needs an epsilon above 0, got {}", options.epsilon);
  }
  std::string_view class_name() const override { return "BatchNormalization"; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("axis", options_.axis);
    config.set("momentum", options_.momentum);
    config.set("epsilon", options_.epsilon);
    config.set("center", options_.center);
    config.set("scale", options_.scale);
    config.set("beta_initializer", initializer_config(options_.beta_initializer));
    config.set("gamma_initializer", initializer_config(options_.gamma_initializer));
    config.set("moving_mean_initializer", initializer_config(options_.moving_mean_initializer));
    config.set("moving_variance_initializer", initializer_config(options_.moving_variance_initializer));
    for (const char* key : kUnset) config.set(key, nullptr);
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 1, "{} needs samples with at least one axis, got shape {}", title(),
            inputs[0].text());
    require(options_.axis == -1 || options_.axis == inputs[0].rank(),
            "{} normalizes the last axis only: axis must be -1 or, for samples of shape {}, {}; got {}",
            title(), inputs[0].text(), inputs[0].rank(), options_.axis);
    return inputs[0];
  }
  void build(std::span<const Shape> inputs) override {
    const Shape channels{inputs[0][inputs[0].rank() - 1]};
    if (options_.scale) gamma_ = &add_weight("gamma", channels, options_.gamma_initializer);
    if (options_.center) beta_ = &add_weight("beta", channels, options_.beta_initializer);
    moving_mean_ = &add_weight("moving_mean", channels, options_.moving_mean_initializer, false);
    moving_variance_ = &add_weight("moving_variance", channels, options_.moving_variance_initializer, false);
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    ValueId in = call.inputs[0];
    builder.tensor(in);
    const Shape shape = builder.desc(in).shape;
    const int rank = shape.rank();
    const bool flat = rank != 2 && rank != 4;  // kernels take rows and images
    if (flat) in = builder.reshape(in, {shape.elements() / shape[rank - 1], shape[rank - 1]});
    auto& kernel = builder.own(builder.backend().batch_norm({.input = builder.desc(in),
                                                             .momentum = options_.momentum,
                                                             .epsilon = options_.epsilon,
                                                             .scale = options_.scale,
                                                             .center = options_.center,
                                                             .mode = mode(builder)}));
    const ValueId out = append(builder, kernel, in, call.name);
    return flat ? builder.reshape(out, shape) : out;
  }

 private:
  struct Parameters {
    Parameter* gamma = nullptr;
    Parameter* beta = nullptr;
    Parameter* mean = nullptr;
    Parameter* variance = nullptr;

    BatchNormParameters tensors() const {
      return {gamma ? gamma->value : Tensor{}, beta ? beta->value : Tensor{}, mean->value, variance->value};
    }
  };

  static Parameter* place(PlanBuilder& builder, Weight* weight) {
    return weight ? &builder.parameter(*weight, {.shape = weight->parameter.desc.shape}) : nullptr;
  }

  ValueId append(PlanBuilder& builder, BatchNormKernel& kernel, ValueId in, const std::string& name) {
    const ValueId x = builder.in_layout(in, kernel.input().layout);
    const ValueId y = builder.add_value(kernel.output(), name);
    const Parameters parameters{place(builder, gamma_), place(builder, beta_), place(builder, moving_mean_),
                                place(builder, moving_variance_)};
    const Tensor& from = builder.tensor(x);
    const Tensor& to = builder.tensor(y);
    builder.add_step({.name = name,
                      .kernel = &kernel,
                      .reads = {x},
                      .writes = {y},
                      .run = [&kernel, &from, &to, parameters](const Execution& on) {
                        kernel.forward(on, from, parameters.tensors(), to);
                      }});
    if (!trainable()) {
      builder.on_backward(y, [this, &builder, parameters, x, name](Gradient gradient) {
        append_frozen_backward(builder, parameters, x, gradient, name);
      });
      return y;
    }
    builder.keep(x);
    builder.on_backward(y, [&builder, &kernel, parameters, x, name](Gradient gradient) {
      append_backward(builder, kernel, parameters, x, gradient, name);
    });
    return y;
  }

  // Frozen, it normalizes by the moving statistics in training too (tf.keras 2.x).
  Mode mode(const PlanBuilder& builder) const { return trainable() ? builder.mode() : Mode::kInference; }

  // By the moving statistics y = s (x - mean) + beta, so dx = s dy: the same function without the shifts.
  void append_frozen_backward(PlanBuilder& builder, const Parameters& parameters, ValueId x,
                              const Gradient& gradient, const std::string& name) {
    auto& kernel = builder.own(builder.backend().batch_norm({.input = builder.desc(gradient.id),
                                                             .momentum = options_.momentum,
                                                             .epsilon = options_.epsilon,
                                                             .scale = options_.scale,
                                                             .center = false,
                                                             .mode = Mode::kInference}));
    RONDO_CHECK(kernel.input().layout == builder.desc(gradient.id).layout);
    const ValueId result = builder.add_value(kernel.output(), name + " gradient");
    const Tensor& dy = builder.tensor(gradient.id);
    const Tensor& dx = builder.tensor(result);
    const TensorDesc& vector = parameters.mean->desc;
    const auto zeros = std::make_shared<const Buffer>(builder.backend().device().allocate(vector.bytes()));
    builder.add_step({.name = name + ": gradient",
                      .kernel = &kernel,
                      .reads = {gradient.id},
                      .writes = {result},
                      .run = [&kernel, &dy, &dx, parameters, zeros, vector](const Execution& on) {
                        BatchNormParameters unshifted = parameters.tensors();
                        unshifted.beta = {};
                        unshifted.moving_mean = {vector, zeros->data()};
                        kernel.forward(on, dy, unshifted, dx);
                      }});
    builder.add_gradient(x, {result, true});
  }

  static void append_backward(PlanBuilder& builder, BatchNormKernel& kernel, const Parameters& parameters,
                              ValueId x, const Gradient& gradient, const std::string& name) {
    const ValueId result = builder.add_value(kernel.input(), name + " gradient");
    const auto begin = [&](Parameter* parameter) {
      return parameter ? builder.begin_weight_gradient(*parameter) : WeightGradient{&kNoTensor, -1};
    };
    const WeightGradient for_gamma = begin(parameters.gamma);
    const WeightGradient for_beta = begin(parameters.beta);
    const Tensor& in = builder.tensor(x);
    const Tensor& dy = builder.tensor(gradient.id);
    const Tensor& dx = builder.tensor(result);
    const Tensor& dgamma = *for_gamma.tensor;
    const Tensor& dbeta = *for_beta.tensor;
    PlanStep step{
        .name = name + ": gradient", .kernel = &kernel, .reads = {x, gradient.id}, .writes = {result}};
    for (const ValueId temporary : {for_gamma.temporary, for_beta.temporary}) {
      if (temporary >= 0) step.writes.push_back(temporary);
    }
    step.run = [&kernel, &in, &dy, &dx, &dgamma, &dbeta, parameters](const Execution& on) {
      kernel.backward(on, in, dy, parameters.tensors(), dx, dgamma, dbeta);
    };
    builder.add_step(std::move(step));
    if (parameters.beta) builder.end_weight_gradient(*parameters.beta, for_beta);
    if (parameters.gamma) builder.end_weight_gradient(*parameters.gamma, for_gamma);
    builder.add_gradient(x, {result, true});
  }

  layers::BatchNormalization options_;
  Weight* gamma_ = nullptr;
  Weight* beta_ = nullptr;
  Weight* moving_mean_ = nullptr;
  Weight* moving_variance_ = nullptr;
};

std::shared_ptr<Layer> batch_normalization_from(const ConfigView& config) {
  for (const char* key : kUnset) config.require_unset(key);
  for (const char* key : {"renorm", "virtual_batch_size", "adjustment", "synchronized"}) {
    config.require_unset(key);
  }
  int64_t axis = -1;
  if (auto found = config.find("axis")) {  // tf.keras writes a list of one
    if (found->is_list()) {
      const auto axes = found->list();
      if (axes.size() != 1) found->fail("one axis");
      found = axes[0];
    }
    axis = found->integer();
  }
  return layers::make_layer(layers::BatchNormalization{
      .axis = axis,
      .momentum = config.real("momentum", 0.99f),
      .epsilon = config.real("epsilon", 1e-3f),
      .center = config.boolean("center", true),
      .scale = config.boolean("scale", true),
      .beta_initializer = initializer_from(config, "beta_initializer", "zeros"),
      .gamma_initializer = initializer_from(config, "gamma_initializer", "ones"),
      .moving_mean_initializer = initializer_from(config, "moving_mean_initializer", "zeros"),
      .moving_variance_initializer = initializer_from(config, "moving_variance_initializer", "ones"),
      .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 1> kClasses{{{"BatchNormalization", &batch_normalization_from}}};

}  // namespace

std::span<const LayerClass> normalization_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const BatchNormalization& options) {
  return std::make_shared<BatchNormalizationLayer>(options);
}

}  // namespace rondo
