#include "models/graph/nested.h"

#include "models/graph/graph.h"
#include "runtime/base/error.h"

namespace rondo {

NestedModel::NestedModel(std::string name, bool sequential, std::shared_ptr<const Graph> graph)
    : Layer(std::move(name)), sequential_(sequential), graph_(std::move(graph)) {
  if (graph_->outputs().size() != 1) {
    raise<Unavailable>("{} has {} outputs; models with one output can be called as a layer", title(),
                       graph_->outputs().size());
  }
}

Shape NestedModel::output_shape(std::span<const Shape> inputs) const {
  require_inputs(inputs, graph_->inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& wanted = graph_->inputs()[i].shape();
    require(inputs[i] == wanted, "{}: input {} must have shape {}, got {}", title(), i, wanted.text(),
            inputs[i].text());
  }
  return graph_->outputs().front().shape();
}

int64_t NestedModel::count_params(bool trainable_only) const {
  return graph_->count_params(trainable_only);
}

int64_t NestedModel::multiply_adds(std::span<const Shape>) const {
  return graph_->multiply_adds();
}

void NestedModel::set_trainable(bool trainable) {
  Layer::set_trainable(trainable);
  for (const auto& layer : graph_->layers()) layer->set_trainable(trainable);
}

ValueId NestedModel::compile(PlanBuilder&, const Call&) {
  raise<InternalError>("{} was not replaced by its calls", title());
}

}  // namespace rondo
