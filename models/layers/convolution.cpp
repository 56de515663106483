#include "models/layers/convolution.h"

#include <array>

#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "models/layers/window.h"
#include "runtime/base/error.h"
#include "runtime/kernels/conv.h"

namespace rondo {
namespace {

class Conv2DLayer final : public Layer {
 public:
  explicit Conv2DLayer(const layers::Conv2D& options)
      : Layer(options.name),
        options_(options),
        activation_(activation_by_name(options.activation, title_of(options))) {
    window_ = make_window(title_of(options), options.kernel_size, options.strides, options.dilation_rate,
                          options.padding);
    require(options.filters > 0, "{} needs filters > 0, got {}", title_of(options), options.filters);
    require(options.groups > 0 && options.filters % options.groups == 0,
            "{}: {} filters cannot be split into {} groups", title_of(options), options.filters,
            options.groups);
  }
  std::string_view class_name() const override { return "Conv2D"; }
  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  bool takes_16_bits() const override { return true; }
  ActivationKind output_activation() const override { return activation_; }
  bool fuses_activation() const override { return activation_ == ActivationKind::kLinear; }

  Config config() const override {
    Config config = Layer::config();
    config.set("filters", options_.filters);
    config.set("kernel_size", options_.kernel_size);
    config.set("strides", options_.strides);
    config.set("padding", options_.padding);
    config.set("data_format", "channels_last");
    config.set("dilation_rate", options_.dilation_rate);
    config.set("groups", options_.groups);
    config.set("activation", activation_name(activation_));
    config.set("use_bias", options_.use_bias);
    config.set("kernel_initializer", initializer_config(options_.kernel_initializer));
    config.set("bias_initializer", initializer_config(options_.bias_initializer));
    config.set("kernel_regularizer", regularizer_config(options_.kernel_regularizer));
    config.set("bias_regularizer", regularizer_config(options_.bias_regularizer));
    config.set("activity_regularizer", regularizer_config(options_.activity_regularizer));
    config.set("kernel_constraint", constraint_config(options_.kernel_constraint));
    config.set("bias_constraint", constraint_config(options_.bias_constraint));
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "images (height, width, channels)");
    require(inputs[0][2] % options_.groups == 0,
            "{}: {} channels of images {} cannot be split into {} groups", title(), inputs[0][2],
            inputs[0].text(), options_.groups);
    const auto extents = window_output(window_, inputs[0], title());
    return {extents[0], extents[1], options_.filters};
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    const int64_t taps = options_.kernel_size[0] * options_.kernel_size[1] * inputs[0][2] / options_.groups;
    return output_shape(inputs).elements() * taps;
  }
  void build(std::span<const Shape> inputs) override {
    weights_.kernel = &add_weight(
        "kernel",
        {options_.kernel_size[0], options_.kernel_size[1], inputs[0][2] / options_.groups, options_.filters},
        options_.kernel_initializer);
    weights_.kernel->regularizer = options_.kernel_regularizer;
    weights_.kernel->constraint = options_.kernel_constraint;
    if (!options_.use_bias) return;
    weights_.bias = &add_weight("bias", {options_.filters}, options_.bias_initializer);
    weights_.bias->regularizer = options_.bias_regularizer;
    weights_.bias->constraint = options_.bias_constraint;
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId in = call.inputs[0];
    builder.tensor(in);
    const LinearActivation activation = split_activation(activation_, call);
    auto& kernel = builder.own(
        builder.backend().conv2d({.input = builder.desc(in),
                                  .filters = options_.filters,
                                  .kernel_size = options_.kernel_size,
                                  .strides = options_.strides,
                                  .dilation = options_.dilation_rate,
                                  .padding = window_padding(window_, builder.desc(in).shape.sample()),
                                  .groups = options_.groups,
                                  .use_bias = options_.use_bias,
                                  .activation = activation.fused,
                                  .mode = builder.mode(),
                                  .input_gradient = builder.needs_gradient(in),
                                  .tf32 = builder.tf32(),
                                  .kernel_layout = builder.imposed_layout(*weights_.kernel)}));
    const ValueId out = append_linear(builder, kernel, weights_, in, activation.fused, call.name);
    return append_activation(builder, out, activation.after, call.name + " activation");
  }

 private:
  static std::string title_of(const layers::Conv2D& options) {
    return options.name.empty() ? "a Conv2D layer" : fmt::format("Conv2D layer \"{}\"", options.name);
  }

  layers::Conv2D options_;
  ActivationKind activation_;
  Window window_;
  LinearWeights weights_;
};

std::shared_ptr<Layer> conv2d_from(const ConfigView& config) {
  require_channels_last(config);
  return layers::make_layer(
      layers::Conv2D{.filters = config["filters"].integer(),
                     .kernel_size = config["kernel_size"].pair(),
                     .strides = config.pair("strides", {1, 1}),
                     .padding = config.string("padding", "valid"),
                     .dilation_rate = config.pair("dilation_rate", {1, 1}),
                     .groups = config.integer("groups", 1),
                     .activation = activation_from(config),
                     .use_bias = config.boolean("use_bias", true),
                     .kernel_initializer = initializer_from(config, "kernel_initializer", "glorot_uniform"),
                     .bias_initializer = initializer_from(config, "bias_initializer", "zeros"),
                     .kernel_regularizer = regularizer_from(config, "kernel_regularizer"),
                     .bias_regularizer = regularizer_from(config, "bias_regularizer"),
                     .activity_regularizer = regularizer_from(config, "activity_regularizer"),
                     .kernel_constraint = constraint_from(config, "kernel_constraint"),
                     .bias_constraint = constraint_from(config, "bias_constraint"),
                     .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 2> kClasses{{{"Conv2D", &conv2d_from}, {"Convolution2D", &conv2d_from}}};

}  // namespace

std::span<const LayerClass> convolution_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const Conv2D& options) {
  return std::make_shared<Conv2DLayer>(options);
}

}  // namespace rondo
