#include "models/layers/separable.h"

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

template <class Options>
std::string title_of(std::string_view kind, const Options& options) {
  return options.name.empty() ? fmt::format("a {} layer", kind)
                              : fmt::format("{} layer \"{}\"", kind, options.name);
}

// The windows of both layers: what one channel is correlated with.
template <class Options>
class Depthwise {
 public:
  Depthwise(std::string_view kind, const Options& options) : multiplier_(options.depth_multiplier) {
    window_ = make_window(title_of(kind, options), options.kernel_size, options.strides,
                          options.dilation_rate, options.padding);
    require(multiplier_ > 0, "{} needs a depth_multiplier above 0, got {}", title_of(kind, options),
            multiplier_);
  }

  int64_t channels(const Shape& input) const { return input[2] * multiplier_; }
  Shape kernel_shape(const Shape& input) const {
    return {window_.size[0], window_.size[1], input[2], multiplier_};
  }
  std::array<int64_t, 2> extents(const Shape& input, const std::string& title) const {
    return window_output(window_, input, title);
  }
  int64_t multiply_adds(const Shape& input, const Shape& output) const {
    return output[0] * output[1] * channels(input) * window_.size[0] * window_.size[1];
  }
  ValueId append(PlanBuilder& builder, const LinearWeights& weights, ValueId in, Activation fused,
                 const std::string& name) const {
    builder.tensor(in);
    const Shape image = builder.desc(in).shape.sample();
    auto& kernel =
        builder.own(builder.backend().conv2d({.input = builder.desc(in),
                                              .filters = channels(image),
                                              .kernel_size = window_.size,
                                              .strides = window_.strides,
                                              .dilation = window_.dilation,
                                              .padding = window_padding(window_, image),
                                              .groups = image[2],
                                              .use_bias = weights.bias != nullptr,
                                              .activation = fused,
                                              .mode = builder.mode(),
                                              .input_gradient = builder.needs_gradient(in),
                                              .tf32 = builder.tf32(),
                                              .kernel_layout = builder.imposed_layout(*weights.kernel)}));
    return append_linear(builder, kernel, weights, in, fused, name);
  }

 private:
  int64_t multiplier_;
  Window window_;
};

template <class Options>
void set_window(Config& config, const Options& options) {
  config.set("kernel_size", options.kernel_size);
  config.set("strides", options.strides);
  config.set("padding", options.padding);
  config.set("data_format", "channels_last");
  // tf.keras also writes groups, always 1, which Keras 3 refuses.
  config.set("dilation_rate", options.dilation_rate);
}

template <class Options>
void read_window(const ConfigView& config, Options& options) {
  require_channels_last(config);
  options.kernel_size = config["kernel_size"].pair();
  options.strides = config.pair("strides", {1, 1});
  options.padding = config.string("padding", "valid");
  options.dilation_rate = config.pair("dilation_rate", {1, 1});
  options.depth_multiplier = config.integer("depth_multiplier", 1);
  options.activation = activation_from(config);
  options.use_bias = config.boolean("use_bias", true);
  options.depthwise_initializer = initializer_from(config, "depthwise_initializer", "glorot_uniform");
  options.bias_initializer = initializer_from(config, "bias_initializer", "zeros");
  options.depthwise_regularizer = regularizer_from(config, "depthwise_regularizer");
  options.bias_regularizer = regularizer_from(config, "bias_regularizer");
  options.activity_regularizer = regularizer_from(config, "activity_regularizer");
  options.depthwise_constraint = constraint_from(config, "depthwise_constraint");
  options.bias_constraint = constraint_from(config, "bias_constraint");
  options.name = config.string("name", "");
}

class DepthwiseConv2DLayer final : public Layer {
 public:
  explicit DepthwiseConv2DLayer(const layers::DepthwiseConv2D& options)
      : Layer(options.name),
        options_(options),
        activation_(activation_by_name(options.activation, title_of("DepthwiseConv2D", options))),
        depthwise_("DepthwiseConv2D", options) {}
  std::string_view class_name() const override { return "DepthwiseConv2D"; }
  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  bool takes_16_bits() const override { return true; }
  ActivationKind output_activation() const override { return activation_; }
  bool fuses_activation() const override { return activation_ == ActivationKind::kLinear; }

  Config config() const override {
    Config config = Layer::config();
    set_window(config, options_);
    config.set("activation", activation_name(activation_));
    config.set("use_bias", options_.use_bias);
    config.set("bias_initializer", initializer_config(options_.bias_initializer));
    config.set("bias_regularizer", regularizer_config(options_.bias_regularizer));
    config.set("activity_regularizer", regularizer_config(options_.activity_regularizer));
    config.set("bias_constraint", constraint_config(options_.bias_constraint));
    config.set("depth_multiplier", options_.depth_multiplier);
    config.set("depthwise_initializer", initializer_config(options_.depthwise_initializer));
    config.set("depthwise_regularizer", regularizer_config(options_.depthwise_regularizer));
    config.set("depthwise_constraint", constraint_config(options_.depthwise_constraint));
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "images (height, width, channels)");
    const auto extents = depthwise_.extents(inputs[0], title());
    return {extents[0], extents[1], depthwise_.channels(inputs[0])};
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    return depthwise_.multiply_adds(inputs[0], output_shape(inputs));
  }
  void build(std::span<const Shape> inputs) override {
    weights_.kernel =
        &add_weight("depthwise_kernel", depthwise_.kernel_shape(inputs[0]), options_.depthwise_initializer);
    weights_.kernel->regularizer = options_.depthwise_regularizer;
    weights_.kernel->constraint = options_.depthwise_constraint;
    if (!options_.use_bias) return;
    weights_.bias = &add_weight("bias", {depthwise_.channels(inputs[0])}, options_.bias_initializer);
    weights_.bias->regularizer = options_.bias_regularizer;
    weights_.bias->constraint = options_.bias_constraint;
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const LinearActivation activation = split_activation(activation_, call);
    const ValueId out = depthwise_.append(builder, weights_, call.inputs[0], activation.fused, call.name);
    return append_activation(builder, out, activation.after, call.name + " activation");
  }

 private:
  layers::DepthwiseConv2D options_;
  ActivationKind activation_;
  Depthwise<layers::DepthwiseConv2D> depthwise_;
  LinearWeights weights_;
};

class SeparableConv2DLayer final : public Layer {
 public:
  explicit SeparableConv2DLayer(const layers::SeparableConv2D& options)
      : Layer(options.name),
        options_(options),
        activation_(activation_by_name(options.activation, title_of("SeparableConv2D", options))),
        depthwise_("SeparableConv2D", options) {
    require(options.filters > 0, "{} needs filters > 0, got {}", title(), options.filters);
  }
  std::string_view class_name() const override { return "SeparableConv2D"; }
  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  bool takes_16_bits() const override { return true; }
  ActivationKind output_activation() const override { return activation_; }
  bool fuses_activation() const override { return activation_ == ActivationKind::kLinear; }

  Config config() const override {
    Config config = Layer::config();
    config.set("filters", options_.filters);
    set_window(config, options_);
    config.set("depth_multiplier", options_.depth_multiplier);
    config.set("activation", activation_name(activation_));
    config.set("use_bias", options_.use_bias);
    config.set("depthwise_initializer", initializer_config(options_.depthwise_initializer));
    config.set("pointwise_initializer", initializer_config(options_.pointwise_initializer));
    config.set("bias_initializer", initializer_config(options_.bias_initializer));
    config.set("depthwise_regularizer", regularizer_config(options_.depthwise_regularizer));
    config.set("pointwise_regularizer", regularizer_config(options_.pointwise_regularizer));
    config.set("bias_regularizer", regularizer_config(options_.bias_regularizer));
    config.set("activity_regularizer", regularizer_config(options_.activity_regularizer));
    config.set("depthwise_constraint", constraint_config(options_.depthwise_constraint));
    config.set("pointwise_constraint", constraint_config(options_.pointwise_constraint));
    config.set("bias_constraint", constraint_config(options_.bias_constraint));
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "images (height, width, channels)");
    const auto extents = depthwise_.extents(inputs[0], title());
    return {extents[0], extents[1], options_.filters};
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    const Shape output = output_shape(inputs);
    return depthwise_.multiply_adds(inputs[0], output) + output.elements() * depthwise_.channels(inputs[0]);
  }
  void build(std::span<const Shape> inputs) override {
    windows_.kernel =
        &add_weight("depthwise_kernel", depthwise_.kernel_shape(inputs[0]), options_.depthwise_initializer);
    windows_.kernel->regularizer = options_.depthwise_regularizer;
    windows_.kernel->constraint = options_.depthwise_constraint;
    mix_.kernel = &add_weight("pointwise_kernel", {1, 1, depthwise_.channels(inputs[0]), options_.filters},
                              options_.pointwise_initializer);
    mix_.kernel->regularizer = options_.pointwise_regularizer;
    mix_.kernel->constraint = options_.pointwise_constraint;
    if (!options_.use_bias) return;
    mix_.bias = &add_weight("bias", {options_.filters}, options_.bias_initializer);
    mix_.bias->regularizer = options_.bias_regularizer;
    mix_.bias->constraint = options_.bias_constraint;
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId middle =
        depthwise_.append(builder, windows_, call.inputs[0], Activation::kLinear, call.name + " depthwise");
    const LinearActivation activation = split_activation(activation_, call);
    auto& kernel =
        builder.own(builder.backend().conv2d({.input = builder.desc(middle),
                                              .filters = options_.filters,
                                              .use_bias = mix_.bias != nullptr,
                                              .activation = activation.fused,
                                              .mode = builder.mode(),
                                              .input_gradient = builder.needs_gradient(middle),
                                              .tf32 = builder.tf32(),
                                              .kernel_layout = builder.imposed_layout(*mix_.kernel)}));
    const ValueId out = append_linear(builder, kernel, mix_, middle, activation.fused, call.name);
    return append_activation(builder, out, activation.after, call.name + " activation");
  }

 private:
  layers::SeparableConv2D options_;
  ActivationKind activation_;
  Depthwise<layers::SeparableConv2D> depthwise_;
  LinearWeights windows_, mix_;
};

std::shared_ptr<Layer> depthwise_from(const ConfigView& config) {
  layers::DepthwiseConv2D options;
  read_window(config, options);
  return layers::make_layer(options);
}

std::shared_ptr<Layer> separable_from(const ConfigView& config) {
  layers::SeparableConv2D options;
  read_window(config, options);
  options.filters = config["filters"].integer();
  options.pointwise_initializer = initializer_from(config, "pointwise_initializer", "glorot_uniform");
  options.pointwise_regularizer = regularizer_from(config, "pointwise_regularizer");
  options.pointwise_constraint = constraint_from(config, "pointwise_constraint");
  return layers::make_layer(options);
}

constexpr std::array<LayerClass, 3> kClasses{{{"DepthwiseConv2D", &depthwise_from},
                                              {"SeparableConv2D", &separable_from},
                                              {"SeparableConvolution2D", &separable_from}}};

}  // namespace

std::span<const LayerClass> separable_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const DepthwiseConv2D& options) {
  return std::make_shared<DepthwiseConv2DLayer>(options);
}
std::shared_ptr<Layer> layers::make_layer(const SeparableConv2D& options) {
  return std::make_shared<SeparableConv2DLayer>(options);
}

}  // namespace rondo
