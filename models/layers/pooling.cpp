#include "models/layers/pooling.h"

#include <array>

#include "models/graph/mask_step.h"
#include "models/graph/plan_builder.h"
#include "models/graph/unary_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/registry.h"
#include "models/layers/window.h"
#include "runtime/base/error.h"
#include "runtime/kernels/pool.h"

namespace rondo {
namespace {

ValueId append_pool(PlanBuilder& builder, const Pool2DSpec& spec, ValueId in, const std::string& name) {
  auto& kernel = builder.own(builder.backend().pool2d(spec));
  const ValueId x = builder.in_layout(in, kernel.input().layout);
  const ValueId y = builder.add_value(kernel.output(), name);
  append_unary(builder, name, kernel, x, y, &Pool2DKernel::forward);
  builder.on_backward(y, [&builder, &kernel, x, name](Gradient gradient) {
    const ValueId result = builder.add_value(kernel.input(), name + " gradient");
    append_unary(builder, name + ": gradient", kernel, gradient.id, result, &Pool2DKernel::backward);
    builder.add_gradient(x, {result, true});
  });
  return y;
}

template <class Options>
class PoolingLayer final : public Layer {
 public:
  PoolingLayer(const Options& options, Pooling pooling, std::string_view class_name)
      : Layer(options.name), pooling_(pooling), class_name_(class_name) {
    const bool same_as_size = options.strides == std::array<int64_t, 2>{0, 0};
    const std::string who = options.name.empty() ? fmt::format("a {} layer", class_name)
                                                 : fmt::format("{} layer \"{}\"", class_name, options.name);
    window_ = make_window(who, options.pool_size, same_as_size ? options.pool_size : options.strides, {1, 1},
                          options.padding);
  }
  std::string_view class_name() const override { return class_name_; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("pool_size", window_.size);
    config.set("padding", window_.same ? "same" : "valid");
    config.set("strides", window_.strides);
    config.set("data_format", "channels_last");
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "images (height, width, channels)");
    const auto extents = window_output(window_, inputs[0], title());
    return {extents[0], extents[1], inputs[0][2]};
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId in = call.inputs[0];
    builder.tensor(in);
    const Pool2DSpec spec{.input = builder.desc(in),
                          .pooling = pooling_,
                          .pool_size = window_.size,
                          .strides = window_.strides,
                          .padding = window_padding(window_, builder.desc(in).shape.sample()),
                          .mode = builder.mode()};
    return append_pool(builder, spec, in, call.name);
  }

 private:
  Pooling pooling_;
  std::string_view class_name_;
  Window window_;
};

class GlobalPoolingLayer final : public Layer {
 public:
  GlobalPoolingLayer(std::string name, Pooling pooling, bool keepdims)
      : Layer(std::move(name)), pooling_(pooling), keepdims_(keepdims) {}
  std::string_view class_name() const override {
    return pooling_ == Pooling::kMax ? "GlobalMaxPooling2D" : "GlobalAveragePooling2D";
  }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("data_format", "channels_last");
    config.set("keepdims", keepdims_);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "images (height, width, channels)");
    return keepdims_ ? Shape{1, 1, inputs[0][2]} : Shape{inputs[0][2]};
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId in = call.inputs[0];
    builder.tensor(in);
    const Shape image = builder.desc(in).shape.sample();
    const Pool2DSpec spec{.input = builder.desc(in),
                          .pooling = pooling_,
                          .pool_size = {image[0], image[1]},
                          .strides = {image[0], image[1]},
                          .mode = builder.mode()};
    const ValueId pooled = append_pool(builder, spec, in, call.name);
    return keepdims_ ? pooled : builder.flatten(pooled);
  }

 private:
  Pooling pooling_;
  bool keepdims_;
};

// A sequence is an image of one column.
Shape as_image(const Shape& sequence) {
  return {sequence[0], sequence[1], 1, sequence[2]};
}

class Pooling1DLayer final : public Layer {
 public:
  Pooling1DLayer(std::string name, Pooling pooling, int64_t size, int64_t strides, const std::string& padding)
      : Layer(std::move(name)), pooling_(pooling) {
    const int64_t step = strides == 0 ? size : strides;
    window_ = make_window(title(), {size, 1}, {step, 1}, {1, 1}, padding);
  }
  std::string_view class_name() const override {
    return pooling_ == Pooling::kMax ? "MaxPooling1D" : "AveragePooling1D";
  }
  bool takes_16_bits() const override { return true; }
  // tf.keras writes pool_size and strides as lists of one.
  Config config() const override {
    Config config = Layer::config();
    config.set("strides", ConfigList{window_.strides[0]});
    config.set("pool_size", ConfigList{window_.size[0]});
    config.set("padding", window_.same ? "same" : "valid");
    config.set("data_format", "channels_last");
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "samples (positions, channels)");
    return {window_output(window_, {inputs[0][0], 1, inputs[0][1]}, title())[0], inputs[0][1]};
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const Shape shape = builder.desc(call.inputs[0]).shape;
    const ValueId image = builder.reshape(call.inputs[0], as_image(shape));
    const Pool2DSpec spec{.input = builder.desc(image),
                          .pooling = pooling_,
                          .pool_size = window_.size,
                          .strides = window_.strides,
                          .padding = window_padding(window_, as_image(shape).sample()),
                          .mode = builder.mode()};
    const ValueId pooled = append_pool(builder, spec, image, call.name);
    const Shape& out = builder.desc(pooled).shape;
    return builder.reshape(pooled, {out[0], out[1], out[3]});
  }

 private:
  Pooling pooling_;
  Window window_;
};

class GlobalPooling1DLayer final : public Layer {
 public:
  GlobalPooling1DLayer(std::string name, Pooling pooling, bool keepdims)
      : Layer(std::move(name)), pooling_(pooling), keepdims_(keepdims) {}
  std::string_view class_name() const override {
    return pooling_ == Pooling::kMax ? "GlobalMaxPooling1D" : "GlobalAveragePooling1D";
  }
  Config config() const override {
    Config config = Layer::config();
    config.set("data_format", "channels_last");
    config.set("keepdims", keepdims_);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "samples (positions, channels)");
    return keepdims_ ? Shape{1, inputs[0][1]} : Shape{inputs[0][1]};
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    ValueId in = call.inputs[0];
    if (pooling_ == Pooling::kAverage && call.masked()) {
      const ValueId shares = append_mask_shares(builder, call.masks[0], call.name);
      in = append_mask_scale(builder, in, shares, call.name);
    }
    const Shape image = as_image(builder.desc(in).shape);
    in = builder.reshape(in, image);
    const Pool2DSpec spec{.input = builder.desc(in),
                          .pooling = pooling_,
                          .pool_size = {image[1], 1},
                          .strides = {image[1], 1},
                          .mode = builder.mode()};
    const ValueId pooled = append_pool(builder, spec, in, call.name);
    return builder.reshape(pooled, keepdims_ ? Shape{image[0], 1, image[3]} : Shape{image[0], image[3]});
  }

 private:
  Pooling pooling_;
  bool keepdims_;
};

// A whole number, or a list of one.
int64_t one_of(const ConfigView& config, std::string_view key, int64_t preset) {
  const auto found = config.find(key);
  if (!found) return preset;
  if (!found->is_list()) return found->integer();
  const auto list = found->list();
  if (list.size() != 1) found->fail("a list of one whole number");
  return list.front().integer();
}

template <class Options>
std::shared_ptr<Layer> pooling_1d_from(const ConfigView& config) {
  require_channels_last(config);
  const int64_t size = one_of(config, "pool_size", 2);
  return layers::make_layer(Options{.pool_size = size,
                                    .strides = one_of(config, "strides", size),
                                    .padding = config.string("padding", "valid"),
                                    .name = config.string("name", "")});
}

template <class Options>
std::shared_ptr<Layer> pooling_from(const ConfigView& config) {
  require_channels_last(config);
  const auto size = config.pair("pool_size", {2, 2});
  return layers::make_layer(Options{.pool_size = size,
                                    .strides = config.pair("strides", size),
                                    .padding = config.string("padding", "valid"),
                                    .name = config.string("name", "")});
}

template <class Options>
std::shared_ptr<Layer> global_pooling_from(const ConfigView& config) {
  require_channels_last(config);
  return layers::make_layer(
      Options{.keepdims = config.boolean("keepdims", false), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 8> kClasses{
    {{"MaxPooling1D", &pooling_1d_from<layers::MaxPooling1D>},
     {"AveragePooling1D", &pooling_1d_from<layers::AveragePooling1D>},
     {"GlobalMaxPooling1D", &global_pooling_from<layers::GlobalMaxPooling1D>},
     {"GlobalAveragePooling1D", &global_pooling_from<layers::GlobalAveragePooling1D>},
     {"MaxPooling2D", &pooling_from<layers::MaxPooling2D>},
     {"AveragePooling2D", &pooling_from<layers::AveragePooling2D>},
     {"GlobalMaxPooling2D", &global_pooling_from<layers::GlobalMaxPooling2D>},
     {"GlobalAveragePooling2D", &global_pooling_from<layers::GlobalAveragePooling2D>}}};

}  // namespace

std::span<const LayerClass> pooling_classes() {
  return kClasses;
}

namespace layers {

std::shared_ptr<Layer> make_layer(const MaxPooling2D& options) {
  return std::make_shared<PoolingLayer<MaxPooling2D>>(options, Pooling::kMax, "MaxPooling2D");
}
std::shared_ptr<Layer> make_layer(const AveragePooling2D& options) {
  return std::make_shared<PoolingLayer<AveragePooling2D>>(options, Pooling::kAverage, "AveragePooling2D");
}
std::shared_ptr<Layer> make_layer(const MaxPooling1D& options) {
  return std::make_shared<Pooling1DLayer>(options.name, Pooling::kMax, options.pool_size, options.strides,
                                          options.padding);
}
std::shared_ptr<Layer> make_layer(const AveragePooling1D& options) {
  return std::make_shared<Pooling1DLayer>(options.name, Pooling::kAverage, options.pool_size, options.strides,
                                          options.padding);
}
std::shared_ptr<Layer> make_layer(const GlobalAveragePooling1D& options) {
  return std::make_shared<GlobalPooling1DLayer>(options.name, Pooling::kAverage, options.keepdims);
}
std::shared_ptr<Layer> make_layer(const GlobalMaxPooling1D& options) {
  return std::make_shared<GlobalPooling1DLayer>(options.name, Pooling::kMax, options.keepdims);
}
std::shared_ptr<Layer> make_layer(const GlobalAveragePooling2D& options) {
  return std::make_shared<GlobalPoolingLayer>(options.name, Pooling::kAverage, options.keepdims);
}
std::shared_ptr<Layer> make_layer(const GlobalMaxPooling2D& options) {
  return std::make_shared<GlobalPoolingLayer>(options.name, Pooling::kMax, options.keepdims);
}

}  // namespace layers
}  // namespace rondo
