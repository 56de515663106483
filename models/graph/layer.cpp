#include "models/graph/layer.h"

#include <fmt/core.h>

#include "models/graph/config.h"
#include "models/graph/device_scope.h"
#include "models/graph/plan_builder.h"
#include "runtime/base/error.h"

namespace rondo {

const std::vector<float>& Weight::values() {
  if (host.empty()) {
    host.resize(static_cast<size_t>(shape.elements()));
    initializer.fill(shape, key, host);
  }
  return host;
}

void Layer::set_trainable(bool trainable) {
  trainable_ = trainable;
  for (const auto& weight : weights_) weight->parameter.trainable = trainable && weight->trainable;
}

std::string Layer::title() const {
  if (name_.empty()) return fmt::format("a {} layer", class_name());
  return fmt::format("{} layer \"{}\"", class_name(), name_);
}

Config Layer::config() const {
  return {{"name", name_}, {"trainable", trainable_}, {"dtype", "float32"}};
}

int64_t Layer::count_params(bool trainable_only) const {
  int64_t count = 0;
  for (const auto& weight : weights_) {
    if (weight->parameter.trainable || !trainable_only) count += weight->parameter.desc.elements();
  }
  return count;
}

Weight& Layer::add_weight(std::string name, const Shape& shape, const Initializer& initializer,
                          bool trainable) {
  initializer.check(fmt::format("{}, weight \"{}\"", title(), name));
  auto weight = std::make_unique<Weight>(
      Weight{.name = std::move(name), .initializer = initializer, .shape = shape, .trainable = trainable});
  weight->parameter.desc.shape = shape;
  weight->parameter.trainable = trainable && trainable_;
  weights_.push_back(std::move(weight));
  return *weights_.back();
}

void Layer::adopt_weights(Layer& inner, const std::string& prefix) {
  for (auto& weight : inner.weights_) {
    weight->name = prefix + weight->name;
    weight->parameter.trainable = weight->trainable && trainable_;
    weights_.push_back(std::move(weight));
  }
  inner.weights_.clear();
}

void Layer::require_inputs(std::span<const Shape> inputs, size_t count) const {
  require(inputs.size() == count, "{} takes {} input{}, got {}", title(), count, count == 1 ? "" : "s",
          inputs.size());
}

void Layer::require_rank(const Shape& input, int rank, std::string_view needs) const {
  require(input.rank() == rank, "{} needs {}, got samples of shape {}", title(), needs, input.text());
}

LayerHandle::LayerHandle(const SymbolicTensor& input) {
  require(static_cast<bool>(input), "an empty tensor cannot start a Sequential: use layers::Input");
  require(input.node()->inputs.empty(),
          "only layers::Input can stand among the layers of a Sequential, got {}",
          input.node()->layer->title());
  layer_ = input.node()->layer;
}

SymbolicTensor LayerHandle::operator()(const SymbolicTensor& input) const {
  return (*this)(std::vector<SymbolicTensor>{input});
}

SymbolicTensor LayerHandle::operator()(const std::vector<SymbolicTensor>& inputs) const {
  require(layer_ != nullptr, "an empty layer was called");
  std::vector<Shape> shapes;
  for (const SymbolicTensor& input : inputs) {
    require(static_cast<bool>(input), "{} was called on an empty tensor", layer_->title());
    shapes.push_back(input.shape());
  }
  const Shape output = layer_->output_shape(shapes);
  if (layer_->built_for_.empty()) {
    layer_->build(shapes);
    layer_->built_for_ = shapes;
  } else if (!layer_->weights_.empty() && layer_->built_for_ != shapes) {
    raise<InvalidArgument>("{} has weights for inputs of shape {} and cannot be called on {}",
                           layer_->title(), layer_->built_for_.front().text(), shapes.front().text());
  }
  return SymbolicTensor(std::make_shared<const Node>(Node{layer_, inputs, output, scoped_device()}));
}

Config InputLayer::config() const {
  return {{"batch_input_shape", batched_shape_config(shape_)},
          {"dtype", "float32"},
          {"sparse", false},
          {"ragged", false},
          {"name", name()}};
}

ValueId InputLayer::compile(PlanBuilder& builder, const Call& call) {
  return builder.add_external({.shape = shape_.batched(builder.rows())}, call.name);
}

}  // namespace rondo
