#include "models/layers/core.h"

#include <array>

#include "models/graph/dropout_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {
namespace {

class DenseLayer final : public Layer {
 public:
  explicit DenseLayer(const layers::Dense& options)
      : Layer(options.name),
        options_(options),
        activation_(activation_by_name(options.activation, title_of("Dense", options.name))) {
    require(options.units > 0, "{} needs units > 0, got {}", title(), options.units);
  }
  std::string_view class_name() const override { return "Dense"; }
  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  ActivationKind output_activation() const override { return activation_; }
  bool fuses_activation() const override { return activation_ == ActivationKind::kLinear; }
  Config config() const override {
    Config config = Layer::config();
    config.set("units", options_.units);
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
    require(inputs[0].rank() >= 1, "{} needs samples with at least one axis, got shape {}", title(),
            inputs[0].text());
    std::vector<int64_t> extents(inputs[0].extents().begin(), inputs[0].extents().end());
    extents.back() = options_.units;
    return Shape(extents);
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    return inputs[0].elements() * options_.units;
  }
  void build(std::span<const Shape> inputs) override {
    const int64_t features = inputs[0][inputs[0].rank() - 1];
    weights_.kernel = &add_weight("kernel", {features, options_.units}, options_.kernel_initializer);
    weights_.kernel->regularizer = options_.kernel_regularizer;
    weights_.kernel->constraint = options_.kernel_constraint;
    if (!options_.use_bias) return;
    weights_.bias = &add_weight("bias", {options_.units}, options_.bias_initializer);
    weights_.bias->regularizer = options_.bias_regularizer;
    weights_.bias->constraint = options_.bias_constraint;
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    ValueId in = call.inputs[0];
    const ValueId source = builder.flattened_source(in);
    Shape result;  // where it is not what the kernel gives
    if (source != in && builder.desc(source).shape.rank() == 4) {
      in = source;  // an image, which the kernel flattens as it reads
    } else if (const Shape shape = builder.desc(in).shape; shape.rank() > 2) {
      const int64_t features = shape[shape.rank() - 1];
      in = builder.reshape(in, {shape.elements() / features, features});
      std::vector<int64_t> extents(shape.extents().begin(), shape.extents().end());
      extents.back() = options_.units;
      result = Shape(extents);
    }
    const LinearActivation activation = split_activation(activation_, call);
    auto& kernel =
        builder.own(builder.backend().dense({.input = builder.desc(in),
                                             .units = options_.units,
                                             .use_bias = options_.use_bias,
                                             .activation = activation.fused,
                                             .mode = builder.mode(),
                                             .input_gradient = builder.needs_gradient(in),
                                             .tf32 = builder.tf32(),
                                             .kernel_layout = builder.imposed_layout(*weights_.kernel)}));
    ValueId out = append_linear(builder, kernel, weights_, in, activation.fused, call.name);
    if (result.rank() > 0) out = builder.reshape(out, result);
    return append_activation(builder, out, activation.after, call.name + " activation");
  }

 private:
  static std::string title_of(std::string_view kind, const std::string& name) {
    return name.empty() ? fmt::format("a {} layer", kind) : fmt::format("{} layer \"{}\"", kind, name);
  }

  layers::Dense options_;
  ActivationKind activation_;
  LinearWeights weights_;
};

class FlattenLayer final : public Layer {
 public:
  explicit FlattenLayer(const layers::Flatten& options) : Layer(options.name) {}
  std::string_view class_name() const override { return "Flatten"; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("data_format", "channels_last");
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return {inputs[0].elements()};
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override { return builder.flatten(call.inputs[0]); }
};

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(const layers::Activation& options)
      : Layer(options.name), activation_(activation_by_name(options.activation, "an Activation layer")) {}
  std::string_view class_name() const override { return "Activation"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("activation", activation_name(activation_));
    return config;
  }
  ActivationKind output_activation() const override { return activation_; }
  bool is_activation() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 1 || activation_ != ActivationKind::kSoftmax,
            "{} applies softmax to the last axis, but samples have shape ()", title());
    return inputs[0];
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    return call.logits ? call.inputs[0] : append_activation(builder, call.inputs[0], activation_, call.name);
  }

 private:
  ActivationKind activation_;
};

class DropoutLayer final : public Layer {
 public:
  explicit DropoutLayer(const layers::Dropout& options) : Layer(options.name), rate_(options.rate) {
    require(rate_ >= 0.0f && rate_ < 1.0f, "{} needs a rate in [0, 1), got {}", title(), rate_);
  }
  std::string_view class_name() const override { return "Dropout"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("rate", rate_);
    config.set("noise_shape", nullptr);
    config.set("seed", nullptr);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return inputs[0];
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    return append_dropout(builder, call.inputs[0], rate_, call.name);
  }

 private:
  float rate_;
};

std::shared_ptr<Layer> input_from(const ConfigView& config) {
  config.require_unset("sparse");
  config.require_unset("ragged");
  auto shape = config.find("batch_input_shape");
  if (!shape) shape = config["batch_shape"];  // Keras 3
  return std::make_shared<InputLayer>(config.string("name", ""), shape->sample_shape());
}

std::shared_ptr<Layer> dense_from(const ConfigView& config) {
  return layers::make_layer(
      layers::Dense{.units = config["units"].integer(),
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

std::shared_ptr<Layer> flatten_from(const ConfigView& config) {
  require_channels_last(config);
  return layers::make_layer(layers::Flatten{.name = config.string("name", "")});
}

std::shared_ptr<Layer> activation_layer_from(const ConfigView& config) {
  return layers::make_layer(
      layers::Activation{.activation = activation_from(config), .name = config.string("name", "")});
}

std::shared_ptr<Layer> dropout_from(const ConfigView& config) {
  config.require_unset("noise_shape");
  return layers::make_layer(
      layers::Dropout{.rate = config.real("rate", 0.5f), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 5> kClasses{{{"InputLayer", &input_from},
                                              {"Dense", &dense_from},
                                              {"Flatten", &flatten_from},
                                              {"Activation", &activation_layer_from},
                                              {"Dropout", &dropout_from}}};

}  // namespace

std::span<const LayerClass> core_classes() {
  return kClasses;
}

namespace layers {

SymbolicTensor Input(const InputOptions& options) {
  require(options.shape.elements() > 0, "Input needs a shape with elements, got {}", options.shape.text());
  auto layer = std::make_shared<InputLayer>(options.name, options.shape);
  return SymbolicTensor(std::make_shared<const Node>(Node{std::move(layer), {}, options.shape}));
}

std::shared_ptr<Layer> make_layer(const Dense& options) {
  return std::make_shared<DenseLayer>(options);
}
std::shared_ptr<Layer> make_layer(const Flatten& options) {
  return std::make_shared<FlattenLayer>(options);
}
std::shared_ptr<Layer> make_layer(const Activation& options) {
  return std::make_shared<ActivationLayer>(options);
}
std::shared_ptr<Layer> make_layer(const Dropout& options) {
  return std::make_shared<DropoutLayer>(options);
}

}  // namespace layers
}  // namespace rondo
