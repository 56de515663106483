#include "models/layers/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/graph/broadcast_step.h"
#include "models/graph/permute_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

ConfigValue list_of(const std::vector<int64_t>& values) {
  return ConfigList(values.begin(), values.end());
}

class ReshapeLayer final : public Layer {
 public:
  explicit ReshapeLayer(const layers::Reshape& options) : Layer(options.name), target_(options.target_shape) {
    int open = 0;
    for (const int64_t extent : target_) {
      open += extent == -1 ? 1 : 0;
      require(extent == -1 || extent > 0, "{}: extents are above 0, or -1 for what is left, got {}", title(),
              extent);
    }
    require(open <= 1, "{}: at most one extent can be -1, got {}", title(), open);
    require(static_cast<int>(target_.size()) < Shape::kMaxRank, "{}: at most {} axes, got {}", title(),
            Shape::kMaxRank - 1, target_.size());
  }
  std::string_view class_name() const override { return "Reshape"; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("target_shape", list_of(target_));
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    std::vector<int64_t> extents = target_;
    int64_t known = 1;
    for (const int64_t extent : extents) known *= extent == -1 ? 1 : extent;
    const int64_t elements = inputs[0].elements();
    for (int64_t& extent : extents) {
      if (extent == -1 && elements % known == 0) extent = elements / known;
    }
    const bool fits = std::find(extents.begin(), extents.end(), -1) == extents.end() &&
                      Shape(extents).elements() == elements;
    require(fits, "{}: samples of shape {} have {} elements, which do not fit the target ({})", title(),
            inputs[0].text(), elements, fmt::join(target_, ", "));
    return Shape(extents);
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const Shape in = builder.desc(call.inputs[0]).shape.sample();
    const Shape out = output_shape(std::array{in});
    // A flattened image costs nothing until somebody reads it.
    if (out.rank() == 1) return builder.flatten(call.inputs[0]);
    return builder.reshape(call.inputs[0], out.batched(builder.rows()));
  }

 private:
  std::vector<int64_t> target_;
};

class PermuteLayer final : public Layer {
 public:
  explicit PermuteLayer(const layers::Permute& options) : Layer(options.name), dims_(options.dims) {
    std::vector<int64_t> sorted = dims_;
    std::sort(sorted.begin(), sorted.end());
    bool whole = true;
    for (size_t i = 0; i < sorted.size(); ++i) whole = whole && sorted[i] == static_cast<int64_t>(i) + 1;
    require(whole && !dims_.empty(), "{}: dims must be a permutation of 1 to the number of axes, got ({})",
            title(), fmt::join(dims_, ", "));
  }
  std::string_view class_name() const override { return "Permute"; }
  Config config() const override {
    Config config = Layer::config();
    config.set("dims", list_of(dims_));
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], static_cast<int>(dims_.size()),
                 fmt::format("samples of {} axes, one for each of its dims", dims_.size()));
    std::vector<int64_t> extents;
    for (const int64_t axis : dims_) extents.push_back(inputs[0][static_cast<int>(axis) - 1]);
    return Shape(extents);
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    std::vector<int> axes{0};
    for (const int64_t axis : dims_) axes.push_back(static_cast<int>(axis));
    return append_permute(builder, call.inputs[0], axes, call.name);
  }

 private:
  std::vector<int64_t> dims_;
};

class RepeatVectorLayer final : public Layer {
 public:
  explicit RepeatVectorLayer(const layers::RepeatVector& options) : Layer(options.name), n_(options.n) {
    require(n_ > 0, "{} needs an n above 0, got {}", title(), n_);
  }
  std::string_view class_name() const override { return "RepeatVector"; }
  Config config() const override {
    Config config = Layer::config();
    config.set("n", n_);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 1, "samples (features)");
    return {n_, inputs[0][0]};
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const Shape shape = builder.desc(call.inputs[0]).shape;
    const ValueId line = builder.reshape(call.inputs[0], {shape[0], 1, shape[1]});
    return append_broadcast(builder, line, {shape[0], n_, shape[1]}, call.name);
  }

 private:
  int64_t n_;
};

std::vector<int64_t> integers(const ConfigView& list) {
  std::vector<int64_t> values;
  for (const ConfigView& value : list.list()) values.push_back(value.integer());
  return values;
}

std::shared_ptr<Layer> reshape_from(const ConfigView& config) {
  return layers::make_layer(
      layers::Reshape{.target_shape = integers(config["target_shape"]), .name = config.string("name", "")});
}
std::shared_ptr<Layer> permute_from(const ConfigView& config) {
  return layers::make_layer(
      layers::Permute{.dims = integers(config["dims"]), .name = config.string("name", "")});
}

std::shared_ptr<Layer> repeat_from(const ConfigView& config) {
  return layers::make_layer(
      layers::RepeatVector{.n = config["n"].integer(), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 3> kClasses{
    {{"Reshape", &reshape_from}, {"Permute", &permute_from}, {"RepeatVector", &repeat_from}}};

}  // namespace

std::span<const LayerClass> shape_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const RepeatVector& options) {
  return std::make_shared<RepeatVectorLayer>(options);
}
std::shared_ptr<Layer> layers::make_layer(const Reshape& options) {
  return std::make_shared<ReshapeLayer>(options);
}
std::shared_ptr<Layer> layers::make_layer(const Permute& options) {
  return std::make_shared<PermuteLayer>(options);
}

}  // namespace rondo
