#include "models/layers/embedding.h"

#include <array>

#include "models/graph/mask_step.h"
#include "models/graph/plan_builder.h"
#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"
#include "runtime/kernels/sequence.h"

namespace rondo {
namespace {

class EmbeddingLayer final : public Layer {
 public:
  explicit EmbeddingLayer(const layers::Embedding& options) : Layer(options.name), options_(options) {
    require(options.input_dim > 0 && options.output_dim > 0,
            "{} needs input_dim and output_dim above 0, got {} and {}", title(), options.input_dim,
            options.output_dim);
  }
  std::string_view class_name() const override { return "Embedding"; }
  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  bool makes_mask() const override { return options_.mask_zero; }
  Config config() const override {
    Config config = Layer::config();
    config.set("input_dim", options_.input_dim);
    config.set("output_dim", options_.output_dim);
    config.set("embeddings_initializer", initializer_config(options_.embeddings_initializer));
    config.set("embeddings_regularizer", regularizer_config(options_.embeddings_regularizer));
    config.set("activity_regularizer", regularizer_config(options_.activity_regularizer));
    config.set("embeddings_constraint", constraint_config(options_.embeddings_constraint));
    config.set("mask_zero", options_.mask_zero);
    config.set("input_length", nullptr);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require(inputs[0].rank() + 2 <= Shape::kMaxRank, "{} takes samples of at most {} axes, got {}", title(),
            Shape::kMaxRank - 2, inputs[0].text());
    std::vector<int64_t> extents(inputs[0].extents().begin(), inputs[0].extents().end());
    extents.push_back(options_.output_dim);
    return Shape(extents);
  }
  void build(std::span<const Shape>) override {
    table_ =
        &add_weight("embeddings", {options_.input_dim, options_.output_dim}, options_.embeddings_initializer);
    table_->regularizer = options_.embeddings_regularizer;
    table_->constraint = options_.embeddings_constraint;
  }

  // Numbers have no gradient: whoever made them gets none.
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId x = builder.canonical(call.inputs[0]);
    if (options_.mask_zero) *call.mask = append_find_mask(builder, x, 0.0f, true, call.name);
    auto& kernel = builder.own(builder.backend().embedding(
        {.indices = builder.desc(x), .entries = options_.input_dim, .width = options_.output_dim}));
    const ValueId y = builder.add_value(kernel.output(), call.name);
    Parameter& table = builder.parameter(*table_, {.shape = table_->shape});
    const Tensor& from = builder.tensor(x);
    const Tensor& to = builder.tensor(y);
    const Tensor& rows = table.value;
    builder.add_step(
        {.name = call.name,
         .kernel = &kernel,
         .reads = {x},
         .writes = {y},
         .run = [&kernel, &from, &rows, &to](const Execution& on) { kernel.forward(on, from, rows, to); }});
    builder.keep(x);
    builder.on_backward(y, [&builder, &kernel, &table, x, name = call.name](Gradient gradient) {
      if (!table.trainable) return;
      const WeightGradient target = builder.begin_weight_gradient(table);
      const Tensor& in = builder.tensor(x);
      const Tensor& dy = builder.tensor(gradient.id);
      const Tensor& d_table = *target.tensor;
      PlanStep step{
          .name = name + ": weight gradient", .kernel = &kernel, .reads = {x, gradient.id}, .writes = {}};
      if (target.temporary >= 0) step.writes.push_back(target.temporary);
      step.run = [&kernel, &in, &dy, &d_table](const Execution& on) { kernel.backward(on, in, dy, d_table); };
      builder.add_step(std::move(step));
      builder.end_weight_gradient(table, target);
    });
    return y;
  }

 private:
  layers::Embedding options_;
  Weight* table_ = nullptr;
};

std::shared_ptr<Layer> embedding_from(const ConfigView& config) {
  config.require_unset("sparse");
  return layers::make_layer(layers::Embedding{
      .input_dim = config["input_dim"].integer(),
      .output_dim = config["output_dim"].integer(),
      .mask_zero = config.boolean("mask_zero", false),
      .embeddings_initializer = initializer_from(config, "embeddings_initializer", "random_uniform"),
      .embeddings_regularizer = regularizer_from(config, "embeddings_regularizer"),
      .activity_regularizer = regularizer_from(config, "activity_regularizer"),
      .embeddings_constraint = constraint_from(config, "embeddings_constraint"),
      .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 1> kClasses{{{"Embedding", &embedding_from}}};

}  // namespace

std::span<const LayerClass> embedding_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const Embedding& options) {
  return std::make_shared<EmbeddingLayer>(options);
}

}  // namespace rondo
