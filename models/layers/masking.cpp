#include "models/layers/masking.h"

#include <array>

#include "models/graph/config.h"
#include "models/graph/mask_step.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

class MaskingLayer final : public Layer {
 public:
  explicit MaskingLayer(const layers::Masking& options) : Layer(options.name), value_(options.mask_value) {}
  std::string_view class_name() const override { return "Masking"; }
  bool makes_mask() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("mask_value", value_);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 2, "{} needs samples (positions, features), got shape {}", title(),
            inputs[0].text());
    return inputs[0];
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    *call.mask = append_find_mask(builder, call.inputs[0], value_, false, call.name);
    return append_mask_scale(builder, call.inputs[0], *call.mask, call.name);
  }

 private:
  float value_;
};

std::shared_ptr<Layer> masking_from(const ConfigView& config) {
  return layers::make_layer(
      layers::Masking{.mask_value = config.real("mask_value", 0.0f), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 1> kClasses{{{"Masking", &masking_from}}};

}  // namespace

std::span<const LayerClass> masking_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const Masking& options) {
  return std::make_shared<MaskingLayer>(options);
}

}  // namespace rondo
