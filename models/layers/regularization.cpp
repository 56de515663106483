#include "models/layers/regularization.h"

#include <array>

#include "models/graph/config.h"
#include "models/graph/plan_builder.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

class ActivityRegularizationLayer final : public Layer {
 public:
  explicit ActivityRegularizationLayer(const layers::ActivityRegularization& options)
      : Layer(options.name), penalty_{options.l1, options.l2} {
    require(options.l1 >= 0.0 && options.l2 >= 0.0, "{} needs l1 and l2 of at least 0, got {} and {}",
            title(), options.l1, options.l2);
  }
  std::string_view class_name() const override { return "ActivityRegularization"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return true; }
  Regularizer activity_regularizer() const override { return penalty_; }
  Config config() const override {
    Config config = Layer::config();
    config.set("l1", penalty_.l1);
    config.set("l2", penalty_.l2);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return inputs[0];
  }
  ValueId compile(PlanBuilder&, const Call& call) override { return call.inputs[0]; }

 private:
  Regularizer penalty_;
};

std::shared_ptr<Layer> activity_from(const ConfigView& config) {
  return layers::make_layer(layers::ActivityRegularization{
      .l1 = config.number("l1", 0.0), .l2 = config.number("l2", 0.0), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 1> kClasses{{{"ActivityRegularization", &activity_from}}};

}  // namespace

std::span<const LayerClass> regularization_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const ActivityRegularization& options) {
  return std::make_shared<ActivityRegularizationLayer>(options);
}

}  // namespace rondo
