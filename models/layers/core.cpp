#include "models/layers/core.h"

#include "models/layers/linear.h"
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
  ActivationKind output_activation() const override { return activation_; }
  bool fuses_activation() const override { return activation_ == ActivationKind::kLinear; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 1, "{} needs samples with at least one axis, got shape {}", title(),
            inputs[0].text());
    std::vector<int64_t> extents(inputs[0].extents().begin(), inputs[0].extents().end());
    extents.back() = options_.units;
    return Shape(extents);
  }
  void build(std::span<const Shape> inputs) override {
    const int64_t features = inputs[0][inputs[0].rank() - 1];
    weights_.kernel = &add_weight("kernel", {features, options_.units}, options_.kernel_initializer);
    if (options_.use_bias) weights_.bias = &add_weight("bias", {options_.units}, options_.bias_initializer);
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
                                             .kernel_layout = builder.imposed_layout(*weights_.kernel)}));
    ValueId out = append_linear(builder, kernel, weights_, in, activation.fused, call.name);
    if (result.rank() > 0) out = builder.reshape(out, result);
    return append_activation(builder, out, activation.after, call.name + " softmax");
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
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return inputs[0];
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const uint32_t stream = builder.next_dropout_stream();
    const ValueId in = call.inputs[0];
    if (!builder.training() || rate_ == 0.0f) return in;
    builder.tensor(in);
    auto& kernel =
        builder.own(builder.backend().dropout({.desc = builder.desc(in), .rate = rate_, .stream = stream}));
    const ValueId x = builder.in_layout(in, kernel.desc().layout);
    const std::string name = call.name;
    const ValueId y =
        builder.may_overwrite(x) ? builder.overwrite(x, name) : builder.add_value(kernel.desc(), name);
    const Tensor& from = builder.tensor(x);
    const Tensor& to = builder.tensor(y);
    builder.add_step({.name = name,
                      .kernel = &kernel,
                      .reads = {x},
                      .writes = {y},
                      .run = [&kernel, &from, &to](const Execution& on) { kernel.forward(on, from, to); }});
    builder.on_backward(y, [&builder, &kernel, x, name](Gradient gradient) {
      const ValueId result = builder.gradient_value(kernel.desc(), gradient, name + " gradient");
      const Tensor& dy = builder.tensor(gradient.id);
      const Tensor& dx = builder.tensor(result);
      builder.add_step({.name = name + ": gradient",
                        .kernel = &kernel,
                        .reads = {gradient.id},
                        .writes = {result},
                        .run = [&kernel, &dy, &dx](const Execution& on) { kernel.backward(on, dy, dx); }});
      builder.add_gradient(x, {result, true});
    });
    return y;
  }

 private:
  float rate_;
};

}  // namespace

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
