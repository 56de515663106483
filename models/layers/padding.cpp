#include "models/layers/padding.h"

#include "models/graph/plan_builder.h"
#include "models/graph/unary_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"

namespace rondo {
namespace {

class ZeroPaddingLayer final : public Layer {
 public:
  explicit ZeroPaddingLayer(const layers::ZeroPadding2D& options)
      : Layer(options.name),
        padding_{options.padding[0][0], options.padding[0][1], options.padding[1][0], options.padding[1][1]} {
    for (const int64_t width : padding_) {
      require(width >= 0, "{} needs padding of at least 0, got {}", title(), width);
    }
  }
  std::string_view class_name() const override { return "ZeroPadding2D"; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("padding", ConfigList{std::array<int64_t, 2>{padding_[0], padding_[1]},
                                     std::array<int64_t, 2>{padding_[2], padding_[3]}});
    config.set("data_format", "channels_last");
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "images (height, width, channels)");
    return {inputs[0][0] + padding_[0] + padding_[1], inputs[0][1] + padding_[2] + padding_[3], inputs[0][2]};
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    builder.tensor(call.inputs[0]);
    auto& kernel =
        builder.own(builder.backend().pad({.input = builder.desc(call.inputs[0]), .padding = padding_}));
    const ValueId x = builder.in_layout(call.inputs[0], kernel.input().layout);
    const ValueId y = builder.add_value(kernel.output(), call.name);
    append_unary(builder, call.name, kernel, x, y, &PadKernel::pad);
    builder.on_backward(y, [&builder, &kernel, x, name = call.name](Gradient gradient) {
      const ValueId result = builder.add_value(kernel.input(), name + " gradient");
      append_unary(builder, name + ": gradient", kernel, gradient.id, result, &PadKernel::crop);
      builder.add_gradient(x, {result, true});
    });
    return y;
  }

 private:
  std::array<int64_t, 4> padding_;
};

// An int, (h, w), or ((top, bottom), (left, right)).
std::shared_ptr<Layer> zero_padding_from(const ConfigView& config) {
  require_channels_last(config);
  layers::ZeroPadding2D options{.name = config.string("name", "")};
  if (const auto padding = config.find("padding")) {
    const bool nested = padding->is_list() && padding->list().size() == 2 && padding->list()[0].is_list();
    if (nested) {
      options.padding = {padding->list()[0].pair(), padding->list()[1].pair()};
    } else {
      const auto [h, w] = padding->pair();
      options.padding = {{{h, h}, {w, w}}};
    }
  }
  return layers::make_layer(options);
}

constexpr std::array<LayerClass, 1> kClasses{{{"ZeroPadding2D", &zero_padding_from}}};

}  // namespace

std::span<const LayerClass> padding_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const ZeroPadding2D& options) {
  return std::make_shared<ZeroPaddingLayer>(options);
}

}  // namespace rondo
