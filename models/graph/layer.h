// Layer: a kind of computation with its weights; calling it on tensors that stand for data builds a graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/activation_kind.h"
#include "models/graph/initializer.h"
#include "models/graph/regularizer.h"
#include "runtime/kernels/constraint.h"
#include "runtime/tensor/parameter.h"
#include "runtime/tensor/shape.h"

namespace rondo {

class Config;
class Graph;
class Layer;
class PlanBuilder;
struct ModelHome;
struct ModelState;
class SymbolicTensor;
using ValueId = int;  // a tensor in a plan, see plan.h

// One call of a layer.
struct Node {
  std::shared_ptr<Layer> layer;
  std::vector<SymbolicTensor> inputs;
  Shape output;     // of one sample
  int device = -1;  // of the rank's set, from the device_scope around the call; -1: none
};

// What a layer's call gives: a place in a graph. Copies are the same place.
class SymbolicTensor {
 public:
  SymbolicTensor() = default;
  explicit SymbolicTensor(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  explicit operator bool() const { return node_ != nullptr; }
  // Extents of one sample, without the batch.
  const Shape& shape() const { return node_->output; }
  const std::shared_ptr<const Node>& node() const { return node_; }

 private:
  std::shared_ptr<const Node> node_;
};

// A weight of a layer. Until a device holds it (the parameter has a value), its values are on the host, in
// canonical order; those of an untouched weight are drawn when they are asked for.
struct Weight {
  std::string name;  // within the layer: "kernel"
  Initializer initializer;
  // As in Keras. On a device the parameter may have other extents that put the same elements in the same
  // canonical order: (3, 3, 8, 2) of a depthwise convolution is (3, 3, 1, 16) to its kernel.
  Shape shape = {};
  Regularizer regularizer = {};
  Constraint constraint = {};
  bool trainable = true;     // the parameter is trained where its layer is trainable too
  Parameter parameter = {};  // its name is "<layer>/<weight>" once the layer belongs to a model
  RandomKey key = {};        // of the initial values, once the layer belongs to a model
  std::vector<float> host = {};
  // For models: the devices that it is bound to, with all weights that were bound together, and whose trainer
  // has it in its buckets.
  std::shared_ptr<ModelHome> home = {};
  const ModelState* trained_by = nullptr;
  bool on_device() const { return static_cast<bool>(parameter.value); }
  // The values of a weight that no device holds; drawn now where nobody has given any.
  const std::vector<float>& values();
};

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  virtual std::string_view class_name() const = 0;  // Keras' class: "Conv2D"
  // The name the user gave, or the one its first model gave it; empty before.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  // "Conv2D layer "conv1"" for messages.
  std::string title() const;

  // What Keras' get_config() gives in tf.keras 2.x: all that makes the layer anew, without its weights. See
  // config.h and models/layers/registry.h. This one has the keys that all layers share: name, trainable and
  // dtype.
  virtual Config config() const;

  // Shape inference for one sample; throws InvalidArgument that names the layer, what it got and what it
  // needs.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  // Declares the weights; called once, before the first call.
  virtual void build(std::span<const Shape> /*inputs*/) {}

  // In Keras' order: trainable ones, then the others.
  std::span<const std::unique_ptr<Weight>> weights() const { return weights_; }
  // A layer that is not trainable keeps its weights: no gradients, no updates; penalties stay in the loss, as
  // in tf.keras 2.x. Takes effect in models compiled afterwards.
  bool trainable() const { return trainable_; }
  virtual void set_trainable(bool trainable);
  // The graph of a model that is called as a layer; null for layers with steps of their own.
  virtual const Graph* nested() const { return nullptr; }
  virtual int64_t count_params(bool trainable_only = false) const;
  // Of one sample's forward pass through the products of the layer: convolutions, matrix products.
  virtual int64_t multiply_adds(std::span<const Shape> /*inputs*/) const { return 0; }

  // What the layer applies last to its result.
  virtual ActivationKind output_activation() const { return ActivationKind::kLinear; }
  // The layer does nothing but apply output_activation().
  virtual bool is_activation() const { return false; }
  // The layer's kernel can apply an element-wise activation that follows it.
  virtual bool fuses_activation() const { return false; }
  // The layer's steps work on inputs of 16 bits, too: in bfloat16 or float16 models it is given such, and
  // others are given float32.
  virtual bool takes_16_bits() const { return false; }

  // A penalty on the layer's result: as in Keras its sum over the batch is divided by the batch's rows.
  virtual Regularizer activity_regularizer() const { return {}; }

  // Masks say which positions of a sequence count. As in tf.keras, a layer that passes_mask() hands its first
  // input's on; the others' results have none, unless compile() says one.
  virtual bool passes_mask() const { return false; }
  // The layer's result has a mask where its inputs have none.
  virtual bool makes_mask() const { return false; }

  // The layer adds its inputs, and does nothing else.
  virtual bool is_sum() const { return false; }
  // Where the backend fuses_norm(): the layer's kernel can add another tensor to its result, and then apply
  // ReLU.
  virtual bool fuses_sum_and_relu() const { return false; }

  struct Call {
    std::span<const ValueId> inputs;
    std::string name;                                // of the layer, for reports
    std::optional<Activation> fused = std::nullopt;  // applied behind the layer by its kernel
    ValueId addend = -1;  // of the result's shape: added to it in front of `fused`, by the layer's kernel
    bool logits = false;  // leave output_activation() out
    // By input, -1 where it has no mask, and the result's: float32 (rows, ...), the input's axes but the
    // last.
    std::vector<ValueId> masks = {};
    ValueId* mask = nullptr;  // preset by passes_mask(); compile() may set another
    bool masked() const {
      return std::any_of(masks.begin(), masks.end(), [](ValueId each) { return each >= 0; });
    }
  };
  // Appends the layer's steps to a plan and gives its output.
  virtual ValueId compile(PlanBuilder& builder, const Call& call) = 0;

 protected:
  friend class LayerHandle;
  Weight& add_weight(std::string name, const Shape& shape, const Initializer& initializer,
                     bool trainable = true);
  // Takes the weights of a layer inside of this one, whose names get `prefix` in front; `inner` goes on using
  // them.
  void adopt_weights(Layer& inner, const std::string& prefix);
  // Throws unless there are `count` inputs.
  void require_inputs(std::span<const Shape> inputs, size_t count) const;
  // Throws unless the input has `rank` axes, batch not counted; `needs` describes them.
  void require_rank(const Shape& input, int rank, std::string_view needs) const;

 private:
  std::string name_;
  bool trainable_ = true;
  std::vector<std::unique_ptr<Weight>> weights_;
  std::vector<Shape> built_for_;  // input shapes of the first call
};

// Calls a layer. Two calls share its weights.
class LayerHandle {
 public:
  LayerHandle() = default;
  explicit LayerHandle(std::shared_ptr<Layer> layer) : layer_(std::move(layer)) {}
  // From an options struct of rondo::layers.
  template <class Options>
  requires requires(const Options& options) { options.layer.of(options); }
  LayerHandle(const Options& options) : layer_(options.layer.of(options)) {}
  // The Input of a Sequential. Throws InvalidArgument for any other tensor.
  LayerHandle(const SymbolicTensor& input);

  SymbolicTensor operator()(const SymbolicTensor& input) const;
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const;
  const std::shared_ptr<Layer>& layer() const { return layer_; }

 private:
  std::shared_ptr<Layer> layer_;
};

// Stands where data enters a graph.
class InputLayer : public Layer {
 public:
  InputLayer(std::string name, const Shape& shape) : Layer(std::move(name)), shape_(shape) {}
  std::string_view class_name() const override { return "InputLayer"; }
  const Shape& shape() const { return shape_; }
  Config config() const override;
  Shape output_shape(std::span<const Shape>) const override { return shape_; }
  ValueId compile(PlanBuilder& builder, const Call& call) override;

 private:
  Shape shape_;
};

}  // namespace rondo
