#include "models/layers/attention.h"

#include <array>
#include <cmath>

#include "models/graph/dropout_step.h"
#include "models/graph/mask_step.h"
#include "models/graph/matmul_step.h"
#include "models/graph/permute_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/linear.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"
#include "runtime/kernels/dense.h"

namespace rondo {
namespace {

class MultiHeadAttentionLayer final : public Layer {
 public:
  explicit MultiHeadAttentionLayer(const layers::MultiHeadAttention& options)
      : Layer(options.name),
        options_(options),
        value_dim_(options.value_dim > 0 ? options.value_dim : options.key_dim) {
    require(options.num_heads > 0 && options.key_dim > 0 && options.value_dim >= 0,
            "{} needs num_heads and key_dim above 0, got {} and {}", title(), options.num_heads,
            options.key_dim);
    require(options.dropout >= 0.0f && options.dropout < 1.0f, "{} needs a dropout in [0, 1), got {}",
            title(), options.dropout);
  }
  std::string_view class_name() const override { return "MultiHeadAttention"; }
  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  bool passes_mask() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("num_heads", options_.num_heads);
    config.set("key_dim", options_.key_dim);
    config.set("value_dim", value_dim_);
    config.set("dropout", options_.dropout);
    config.set("use_bias", options_.use_bias);
    config.set("output_shape", nullptr);
    config.set("attention_axes", ConfigList{1});
    config.set("kernel_initializer", initializer_config(options_.kernel_initializer));
    config.set("bias_initializer", initializer_config(options_.bias_initializer));
    config.set("kernel_regularizer", regularizer_config(options_.kernel_regularizer));
    config.set("bias_regularizer", regularizer_config(options_.bias_regularizer));
    config.set("activity_regularizer", regularizer_config(options_.activity_regularizer));
    config.set("kernel_constraint", constraint_config(options_.kernel_constraint));
    config.set("bias_constraint", constraint_config(options_.bias_constraint));
    // tf.keras asks for them, and finds out by itself where they are null.
    for (const char* key : {"query_shape", "key_shape", "value_shape"}) config.set(key, nullptr);
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 2 || inputs.size() == 3,
            "{} takes {{query, value}} or {{query, value, key}}, got {} inputs", title(), inputs.size());
    for (const Shape& input : inputs) require_rank(input, 2, "samples (positions, features)");
    require(inputs.size() == 2 || inputs[1][0] == inputs[2][0],
            "{} needs as many keys as values, got {} and {}", title(), inputs.back()[0], inputs[1][0]);
    return inputs[0];
  }
  void build(std::span<const Shape> inputs) override {
    const int64_t heads = options_.num_heads;
    add_projection(query_, "query", {inputs[0][1], heads, options_.key_dim}, {heads, options_.key_dim});
    add_projection(key_, "key", {inputs.back()[1], heads, options_.key_dim}, {heads, options_.key_dim});
    add_projection(value_, "value", {inputs[1][1], heads, value_dim_}, {heads, value_dim_});
    add_projection(output_, "attention_output", {heads, value_dim_, inputs[0][1]}, {inputs[0][1]});
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    const int64_t queries = inputs[0][0], keys = inputs[1][0], heads = options_.num_heads;
    const int64_t projections =
        heads * (options_.key_dim * (inputs[0].elements() + inputs.back().elements()) +
                 value_dim_ * (inputs[1].elements() + inputs[0].elements()));
    return projections + heads * queries * keys * (options_.key_dim + value_dim_);
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const std::string& name = call.name;
    const ValueId q = heads_of(builder, query_, call.inputs[0], options_.key_dim, name + " query");
    const ValueId k = heads_of(builder, key_, call.inputs.back(), options_.key_dim, name + " key");
    const ValueId v = heads_of(builder, value_, call.inputs[1], value_dim_, name + " value");
    const auto alpha = static_cast<float>(1.0 / std::sqrt(static_cast<double>(options_.key_dim)));
    ValueId scores = append_matmul(builder, q, k, true, alpha, name + " scores");
    if (call.masked()) {
      const ValueId keys = append_mask_and(builder, call.masks[1], call.masks.back(), name + " keys");
      scores = append_hide_scores(builder, scores, call.masks[0], keys, name + " masked scores");
    }
    scores = append_activation(builder, scores, ActivationKind::kSoftmax, name + " softmax");
    if (options_.dropout > 0.0f)
      scores = append_dropout(builder, scores, options_.dropout, name + " dropout");
    ValueId mixed = append_matmul(builder, scores, v, false, 1.0f, name + " mix");
    mixed = append_permute(builder, mixed, {0, 2, 1, 3}, name + " join");
    const int64_t positions = builder.desc(mixed).shape[1];
    const ValueId out = project(builder, output_, mixed, options_.num_heads * value_dim_, name);
    return builder.reshape(out, {builder.rows(), positions, output_.bias_shape[0]});
  }

 private:
  struct Projection {
    LinearWeights weights;
    Shape bias_shape;
    int64_t units = 0;
  };

  void add_projection(Projection& into, const std::string& name, const Shape& kernel, const Shape& bias) {
    into.bias_shape = bias;
    into.units = bias.elements();
    into.weights.kernel = &add_weight(name + "/kernel", kernel, options_.kernel_initializer);
    into.weights.kernel->regularizer = options_.kernel_regularizer;
    into.weights.kernel->constraint = options_.kernel_constraint;
    if (!options_.use_bias) return;
    into.weights.bias = &add_weight(name + "/bias", bias, options_.bias_initializer);
    into.weights.bias->regularizer = options_.bias_regularizer;
    into.weights.bias->constraint = options_.bias_constraint;
  }

  // (..., features) to (all positions, units), in the type that layers compute in; scores are float32.
  static ValueId project(PlanBuilder& builder, const Projection& projection, ValueId in, int64_t features,
                         const std::string& name) {
    const int64_t positions = builder.desc(in).shape.elements() / features;
    const ValueId rows = builder.reshape(builder.in_type(in, builder.compute_dtype()), {positions, features});
    auto& kernel = builder.own(
        builder.backend().dense({.input = builder.desc(rows),
                                 .units = projection.units,
                                 .use_bias = projection.weights.bias != nullptr,
                                 .mode = builder.mode(),
                                 .input_gradient = builder.needs_gradient(rows),
                                 .tf32 = builder.tf32(),
                                 .kernel_layout = builder.imposed_layout(*projection.weights.kernel)}));
    const ValueId out = append_linear(builder, kernel, projection.weights, rows, Activation::kLinear, name);
    return builder.in_type(out, DType::kF32);
  }

  // (batch, positions, features) to (batch, heads, positions, dim).
  ValueId heads_of(PlanBuilder& builder, const Projection& projection, ValueId in, int64_t dim,
                   const std::string& name) const {
    const Shape shape = builder.desc(in).shape;
    const ValueId rows = project(builder, projection, in, shape[2], name);
    const ValueId split = builder.reshape(rows, {shape[0], shape[1], options_.num_heads, dim});
    return append_permute(builder, split, {0, 2, 1, 3}, name + " heads");
  }

  layers::MultiHeadAttention options_;
  int64_t value_dim_;
  Projection query_, key_, value_, output_;
};

std::shared_ptr<Layer> attention_from(const ConfigView& config) {
  config.require_unset("output_shape");
  if (const auto axes = config.find("attention_axes")) {
    const bool sequence = axes->is_list() && axes->list().size() == 1 && axes->list()[0].integer() == 1;
    if (!sequence) axes->fail("[1], the positions of a sequence");
  }
  return layers::make_layer(layers::MultiHeadAttention{
      .num_heads = config["num_heads"].integer(),
      .key_dim = config["key_dim"].integer(),
      .value_dim = config.integer("value_dim", 0),
      .dropout = config.real("dropout", 0.0f),
      .use_bias = config.boolean("use_bias", true),
      .kernel_initializer = initializer_from(config, "kernel_initializer", "glorot_uniform"),
      .bias_initializer = initializer_from(config, "bias_initializer", "zeros"),
      .kernel_regularizer = regularizer_from(config, "kernel_regularizer"),
      .bias_regularizer = regularizer_from(config, "bias_regularizer"),
      .activity_regularizer = regularizer_from(config, "activity_regularizer"),
      .kernel_constraint = constraint_from(config, "kernel_constraint"),
      .bias_constraint = constraint_from(config, "bias_constraint"),
      .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 1> kClasses{{{"MultiHeadAttention", &attention_from}}};

}  // namespace

std::span<const LayerClass> attention_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const MultiHeadAttention& options) {
  return std::make_shared<MultiHeadAttentionLayer>(options);
}

}  // namespace rondo
