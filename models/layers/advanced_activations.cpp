#include "models/layers/advanced_activations.h"

#include <array>
#include <limits>

#include "models/graph/activation_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/registry.h"
#include "runtime/base/activations.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

// One element-wise function.
class FunctionLayer : public Layer {
 public:
  FunctionLayer(std::string name, const ActivationFunction& function)
      : Layer(std::move(name)), function_(function) {}
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return inputs[0];
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    return append_activation(builder, call.inputs[0], function_, call.name);
  }

 private:
  ActivationFunction function_;
};

ActivationFunction relu_of(const layers::ReLU& options) {
  const float most = options.max_value.value_or(std::numeric_limits<float>::infinity());
  const bool plain = !options.max_value && options.negative_slope == 0.0f && options.threshold == 0.0f;
  if (plain) return Activation::kRelu;
  return ActivationFunction::clipped_relu(most, options.negative_slope, options.threshold);
}

class ReluLayer final : public FunctionLayer {
 public:
  explicit ReluLayer(const layers::ReLU& options)
      : FunctionLayer(options.name, relu_of(options)),
        options_(options),
        plain_(relu_of(options) == ActivationFunction(Activation::kRelu)) {
    require(options.max_value.value_or(0.0f) >= 0.0f && options.negative_slope >= 0.0f &&
                options.threshold >= 0.0f,
            "{} needs max_value, negative_slope and threshold of at least 0, got {}, {} and {}", title(),
            options.max_value ? fmt::format("{}", *options.max_value) : "none", options.negative_slope,
            options.threshold);
  }
  std::string_view class_name() const override { return "ReLU"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  ActivationKind output_activation() const override {
    return plain_ ? ActivationKind::kRelu : ActivationKind::kLinear;
  }
  bool is_activation() const override { return plain_; }
  Config config() const override {
    Config config = Layer::config();
    config.set("max_value", options_.max_value ? ConfigValue(*options_.max_value) : ConfigValue(nullptr));
    config.set("negative_slope", options_.negative_slope);
    config.set("threshold", options_.threshold);
    return config;
  }

 private:
  layers::ReLU options_;
  bool plain_;
};

class LeakyReluLayer final : public FunctionLayer {
 public:
  explicit LeakyReluLayer(const layers::LeakyReLU& options)
      : FunctionLayer(options.name, ActivationFunction::clipped_relu(std::numeric_limits<float>::infinity(),
                                                                     options.alpha, 0.0f)),
        alpha_(options.alpha) {
    require(alpha_ >= 0.0f, "{} needs an alpha of at least 0, got {}", title(), alpha_);
  }
  std::string_view class_name() const override { return "LeakyReLU"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("alpha", alpha_);
    return config;
  }

 private:
  float alpha_;
};

class EluLayer final : public FunctionLayer {
 public:
  explicit EluLayer(const layers::ELU& options)
      : FunctionLayer(options.name, ActivationFunction::elu(options.alpha)), alpha_(options.alpha) {
    require(alpha_ > 0.0f, "{} needs an alpha above 0, got {}", title(), alpha_);
  }
  std::string_view class_name() const override { return "ELU"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("alpha", alpha_);
    return config;
  }

 private:
  float alpha_;
};

class SoftmaxLayer final : public Layer {
 public:
  explicit SoftmaxLayer(const layers::Softmax& options) : Layer(options.name) {}
  std::string_view class_name() const override { return "Softmax"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  ActivationKind output_activation() const override { return ActivationKind::kSoftmax; }
  bool is_activation() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("axis", -1);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 1, "{} works on the last axis, but samples have shape ()", title());
    return inputs[0];
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    if (call.logits) return call.inputs[0];
    return append_activation(builder, call.inputs[0], ActivationKind::kSoftmax, call.name);
  }
};

std::shared_ptr<Layer> relu_from(const ConfigView& config) {
  layers::ReLU options{.negative_slope = config.real("negative_slope", 0.0f),
                       .threshold = config.real("threshold", 0.0f),
                       .name = config.string("name", "")};
  if (const auto most = config.find("max_value")) options.max_value = static_cast<float>(most->number());
  return layers::make_layer(options);
}

std::shared_ptr<Layer> leaky_relu_from(const ConfigView& config) {
  const float slope = config.real("negative_slope", 0.3f);  // Keras 3's name
  return layers::make_layer(
      layers::LeakyReLU{.alpha = config.real("alpha", slope), .name = config.string("name", "")});
}

std::shared_ptr<Layer> elu_from(const ConfigView& config) {
  return layers::make_layer(
      layers::ELU{.alpha = config.real("alpha", 1.0f), .name = config.string("name", "")});
}

std::shared_ptr<Layer> softmax_from(const ConfigView& config) {
  if (const auto axis = config.find("axis"); axis && axis->integer() != -1) axis->fail("-1, the last axis");
  return layers::make_layer(layers::Softmax{.name = config.string("name", "")});
}

constexpr std::array<LayerClass, 4> kClasses{
    {{"ReLU", &relu_from}, {"LeakyReLU", &leaky_relu_from}, {"ELU", &elu_from}, {"Softmax", &softmax_from}}};

}  // namespace

std::span<const LayerClass> advanced_activation_classes() {
  return kClasses;
}

namespace layers {

std::shared_ptr<Layer> make_layer(const ReLU& options) {
  return std::make_shared<ReluLayer>(options);
}
std::shared_ptr<Layer> make_layer(const LeakyReLU& options) {
  return std::make_shared<LeakyReluLayer>(options);
}
std::shared_ptr<Layer> make_layer(const ELU& options) {
  return std::make_shared<EluLayer>(options);
}
std::shared_ptr<Layer> make_layer(const Softmax& options) {
  return std::make_shared<SoftmaxLayer>(options);
}

}  // namespace layers
}  // namespace rondo
