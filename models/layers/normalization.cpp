#include "models/layers/normalization.h"

#include <array>

#include "models/graph/plan_builder.h"
#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"
#include "runtime/kernels/batch_norm.h"

namespace rondo {
namespace {

class BatchNormalizationLayer final : public Layer {
 public:
  explicit BatchNormalizationLayer(const layers::BatchNormalization& options)
      : Layer(options.name), options_(options) {
    require(options.momentum >= 0.0f && options.momentum <= 1.0f,
            "BatchNormalization needs a momentum in [0, 1], got {}", options.momentum);
    require(options.epsilon > 0.0f, "BatchNormalization needs an epsilon above 0, got {}", options.epsilon);
  }
  std::string_view class_name() const override { return "BatchNormalization"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  bool fuses_sum_and_relu() const override { return trainable(); }
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
            "{} normalizes the last axis only: axis must be -1 or, for samples of shape {}, {}; got {}",
            title(), inputs[0].text(), inputs[0].rank(), options_.axis);
    return inputs[0];
  }
  void build(std::span<const Shape> inputs) override {
    const Shape channels{inputs[0][inputs[0].rank() - 1]};
    if (options_.scale) gamma_ = &add_weight("gamma", channels, options_.gamma_initializer);
    if (options_.center) beta_ = &add_weight("beta", channels, options_.beta_initializer);
    if (gamma_ != nullptr) {
      gamma_->regularizer = options_.gamma_regularizer;
      gamma_->constraint = options_.gamma_constraint;
    }
    if (beta_ != nullptr) {
      beta_->regularizer = options_.beta_regularizer;
      beta_->constraint = options_.beta_constraint;
    }
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
    const BatchNormSpec spec{.input = builder.desc(in),
                             .momentum = options_.momentum,
                             .epsilon = options_.epsilon,
                             .scale = options_.scale,
                             .center = options_.center,
                             .mode = mode(builder)};
    ValueId out = -1;
    if (call.fused) {
      ValueId addend = call.addend;
      if (flat && addend >= 0) addend = builder.reshape(addend, spec.input.shape);
      auto& kernel = builder.own(builder.backend().norm_relu({.norm = spec, .add = addend >= 0}));
      out = append_fused(builder, kernel, in, addend, call.name);
    } else {
      out = append(builder, builder.own(builder.backend().batch_norm(spec)), in, call.name);
    }
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

  // The gradients of gamma and beta, written by one step.
  class WeightGradients {
   public:
    WeightGradients(PlanBuilder& builder, const Parameters& parameters)
        : builder_(builder),
          parameters_(parameters),
          gamma_(begin(parameters.gamma)),
          beta_(begin(parameters.beta)) {}
    const Tensor& gamma() const { return *gamma_.tensor; }
    const Tensor& beta() const { return *beta_.tensor; }
    // Adds the step that writes them.
    void add_step(PlanStep step) const {
      for (const ValueId temporary : {gamma_.temporary, beta_.temporary}) {
        if (temporary >= 0) step.writes.push_back(temporary);
      }
      builder_.add_step(std::move(step));
      if (parameters_.beta) builder_.end_weight_gradient(*parameters_.beta, beta_);
      if (parameters_.gamma) builder_.end_weight_gradient(*parameters_.gamma, gamma_);
    }

   private:
    WeightGradient begin(Parameter* parameter) const {
      return parameter ? builder_.begin_weight_gradient(*parameter) : WeightGradient{&kNoTensor, -1};
    }
    PlanBuilder& builder_;
    const Parameters& parameters_;
    WeightGradient gamma_, beta_;
  };

  static void append_backward(PlanBuilder& builder, BatchNormKernel& kernel, const Parameters& parameters,
                              ValueId x, const Gradient& gradient, const std::string& name) {
    const ValueId result = builder.add_value(kernel.input(), name + " gradient");
    const WeightGradients weights(builder, parameters);
    const Tensor& in = builder.tensor(x);
    const Tensor& dy = builder.tensor(gradient.id);
    const Tensor& dx = builder.tensor(result);
    weights.add_step({.name = name + ": gradient",
                      .kernel = &kernel,
                      .reads = {x, gradient.id},
                      .writes = {result},
                      .run = [&kernel, &in, &dy, &dx, &dgamma = weights.gamma(), &dbeta = weights.beta(),
                              parameters](const Execution& on) {
                        kernel.backward(on, in, dy, parameters.tensors(), dx, dgamma, dbeta);
                      }});
    builder.add_gradient(x, {result, true});
  }

  // relu(norm(in) + other); no other: -1.
  ValueId append_fused(PlanBuilder& builder, NormReluKernel& kernel, ValueId in, ValueId other,
                       const std::string& name) {
    const Layout& layout = kernel.desc().layout;
    const ValueId x = builder.in_layout(in, layout);
    const ValueId addend = other < 0 ? -1 : builder.in_layout(other, layout);
    const bool over = addend >= 0 && builder.may_overwrite(addend);
    const ValueId y = over ? builder.overwrite(addend, name) : builder.add_value(kernel.desc(), name);
    const Parameters parameters{place(builder, gamma_), place(builder, beta_), place(builder, moving_mean_),
                                place(builder, moving_variance_)};
    std::vector<ValueId> reads{x};
    if (addend >= 0) reads.push_back(addend);
    builder.add_step(
        {.name = name,
         .kernel = &kernel,
         .reads = reads,
         .writes = {y},
         .run = [&kernel, &from = builder.tensor(x), &added = addend < 0 ? kNoTensor : builder.tensor(addend),
                 &to = builder.tensor(y), parameters](const Execution& on) {
           kernel.forward(on, from, added, parameters.tensors(), to);
         }});
    builder.keep(x);
    if (addend >= 0) builder.keep(y);
    builder.on_backward(y, [&builder, &kernel, parameters, x, addend, y, name](Gradient gradient) {
      append_fused_backward(builder, kernel, parameters, {x, addend, y}, gradient, name);
    });
    return y;
  }

  struct Fused {
    ValueId x, addend, y;
  };

  // What comes in is overwritten where it may be: by the addend's gradient, or by the input's.
  static void append_fused_backward(PlanBuilder& builder, NormReluKernel& kernel,
                                    const Parameters& parameters, const Fused& values,
                                    const Gradient& gradient, const std::string& name) {
    const auto& [x, addend, y] = values;
    const bool adds = addend >= 0;
    const ValueId for_in = adds ? builder.add_value(kernel.desc(), name + " gradient")
                                : builder.gradient_value(kernel.desc(), gradient, name + " gradient");
    const ValueId for_addend =
        adds ? builder.gradient_value(kernel.desc(), gradient, name + " addend gradient") : -1;
    const WeightGradients weights(builder, parameters);
    PlanStep step{.name = name + ": gradient", .kernel = &kernel, .reads = {x}, .writes = {for_in}};
    if (adds) {
      step.reads.push_back(y);
      step.writes.push_back(for_addend);
    }
    step.reads.push_back(gradient.id);
    step.run = [&kernel, &in = builder.tensor(x), &out = builder.tensor(y), &dy = builder.tensor(gradient.id),
                &dx = builder.tensor(for_in), &dz = adds ? builder.tensor(for_addend) : kNoTensor,
                &dgamma = weights.gamma(), &dbeta = weights.beta(), parameters](const Execution& on) {
      kernel.backward(on, in, out, dy, parameters.tensors(),
                      {.in = dx, .addend = dz, .gamma = dgamma, .beta = dbeta});
    };
    weights.add_step(std::move(step));
    builder.add_gradient(x, {for_in, true});
    if (adds) builder.add_gradient(addend, {for_addend, true});
  }

  layers::BatchNormalization options_;
  Weight* gamma_ = nullptr;
  Weight* beta_ = nullptr;
  Weight* moving_mean_ = nullptr;
  Weight* moving_variance_ = nullptr;
};

std::shared_ptr<Layer> batch_normalization_from(const ConfigView& config) {
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
      .beta_regularizer = regularizer_from(config, "beta_regularizer"),
      .gamma_regularizer = regularizer_from(config, "gamma_regularizer"),
      .beta_constraint = constraint_from(config, "beta_constraint"),
      .gamma_constraint = constraint_from(config, "gamma_constraint"),
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
