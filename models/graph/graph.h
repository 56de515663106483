// Graph: the layers and calls between a model's inputs and outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/graph/layer.h"

namespace rondo {

class Graph {
 public:
  // Finds the calls that lead from `inputs` to `outputs`, names unnamed layers as Keras does ("conv2d",
  // "conv2d_1", ...), names their parameters, and keys the initial values of weights that are in no model yet
  // by (seed, index of the weight). Throws InvalidArgument when an output depends on an Input that is not
  // listed, a listed input is no Input or is not used, or two layers have one name.
  Graph(std::vector<SymbolicTensor> inputs, std::vector<SymbolicTensor> outputs, uint64_t seed);

  const std::vector<SymbolicTensor>& inputs() const { return inputs_; }
  const std::vector<SymbolicTensor>& outputs() const { return outputs_; }
  // In an order in which every call comes after what it reads.
  const std::vector<std::shared_ptr<const Node>>& nodes() const { return nodes_; }
  // Keras' model.layers: by falling distance from the outputs.
  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }
  // The calls that read a call's output, once per read; a model output counts as a read by nobody.
  const std::vector<const Node*>& consumers(const Node& node) const;
  bool is_output(const Node& node) const;
  // Of the layers that make them, as Keras' model.output_names: a name that comes again gets _1, _2, ...
  std::vector<std::string> output_names() const;

  // Keras' get_weights order, over layers().
  const std::vector<Weight*>& weights() const { return weights_; }
  const ParameterList& parameters() const { return parameters_; }
  int64_t count_params(bool trainable_only = false) const;
  // How many devices the calls need: one more than the highest that a device_scope named.
  int devices() const;
  // The same function with the calls of nested models in their places, for plans: layers keep their names,
  // which may occur twice. Nothing where no model is nested.
  std::optional<Graph> flattened() const;
  // Of one sample's forward pass, over all calls: see Layer::multiply_adds.
  int64_t multiply_adds() const;

 private:
  Graph() = default;
  void find_nodes();
  void order_layers();
  void name_layers();
  void collect_weights(uint64_t seed);
  void collect_weights_of(const Layer& layer, const std::string& prefix, uint64_t seed);

  std::vector<SymbolicTensor> inputs_;
  std::vector<SymbolicTensor> outputs_;
  std::vector<std::shared_ptr<const Node>> nodes_;
  std::vector<const Layer*> first_met_;  // layers in the order in which a walk from the outputs meets them
  std::vector<std::shared_ptr<Layer>> layers_;
  std::unordered_map<const Node*, std::vector<const Node*>> consumers_;
  std::vector<Weight*> weights_;
  ParameterList parameters_;
};

}  // namespace rondo
