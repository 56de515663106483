#include "models/layers/normalization.h"

#include "models/graph/plan_builder.h"
#include "models/layers/linear.h"
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

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 1, "{} needs samples with at least one axis, got shape {}", title(),
            inputs[0].text());
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
                                                             .mode = builder.mode()}));
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
    builder.keep(x);
    builder.on_backward(y, [&builder, &kernel, parameters, x, name](Gradient gradient) {
      append_backward(builder, kernel, parameters, x, gradient, name);
    });
    return y;
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

}  // namespace

std::shared_ptr<Layer> layers::make_layer(const BatchNormalization& options) {
  return std::make_shared<BatchNormalizationLayer>(options);
}

}  // namespace rondo
