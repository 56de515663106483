#pragma once

#include <memory>
#include <string>

#include "models/graph/layer.h"

namespace rondo {

class Graph;

// A model with one output called as a layer: its layers and weights are the model's own. A plan sees its
// calls in its place; see Graph::flattened.
class NestedModel : public Layer {
 public:
  NestedModel(std::string name, bool sequential, std::shared_ptr<const Graph> graph);

  std::string_view class_name() const override { return sequential_ ? "Sequential" : "Functional"; }
  const Graph* nested() const override { return graph_.get(); }
  // Throws InvalidArgument unless the inputs have the shapes of the model's.
  Shape output_shape(std::span<const Shape> inputs) const override;
  int64_t count_params(bool trainable_only) const override;
  int64_t multiply_adds(std::span<const Shape> inputs) const override;
  void set_trainable(bool trainable) override;
  ValueId compile(PlanBuilder& builder, const Call& call) override;

 private:
  bool sequential_;
  std::shared_ptr<const Graph> graph_;
};

}  // namespace rondo
