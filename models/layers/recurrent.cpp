#include "models/layers/recurrent.h"

#include <algorithm>
#include <array>

#include "models/graph/mask_step.h"
#include "models/graph/permute_step.h"
#include "models/layers/config_parts.h"
#include "models/layers/constraint_config.h"
#include "models/layers/recurrence.h"
#include "models/layers/recurrent_config.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

bool is_gate_function(const std::string& name) {
  return name == "sigmoid" || name == "hard_sigmoid";
}

// What both layers are beyond their options.
template <class Options>
class RecurrentLayer : public Layer {
 public:
  explicit RecurrentLayer(const Options& options, Recurrence kind)
      : Layer(options.name), options_(options), kind_(kind) {
    require(is_gate_function(options.recurrent_activation),
            "{}: the recurrent_activation \"{}\" is not supported, sigmoid and hard_sigmoid are",
            options.name.empty() ? "a recurrent layer" : options.name, options.recurrent_activation);
    for (const float rate : {options.dropout, options.recurrent_dropout}) {
      require(rate >= 0.0f && rate < 1.0f, "{}, dropout {} and recurrent_dropout {}: rates lie in [0, 1)",
              options.name.empty() ? "a recurrent layer" : options.name, options.dropout,
              options.recurrent_dropout);
    }
  }

  Regularizer activity_regularizer() const override { return options_.activity_regularizer; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "samples (time, features)");
    if (options_.return_sequences) return {inputs[0][0], options_.units};
    return {options_.units};
  }
  void build(std::span<const Shape> inputs) override {
    require(options_.units > 0, "{} needs units above 0, got {}", title(), options_.units);
    const int64_t columns = gate_count(kind_) * options_.units;
    const std::string cell = kind_ == Recurrence::kLstm ? "lstm_cell/" : "gru_cell/";
    weights_.kernel = &add_weight(cell + "kernel", {inputs[0][1], columns}, options_.kernel_initializer);
    weights_.kernel->regularizer = options_.kernel_regularizer;
    weights_.kernel->constraint = options_.kernel_constraint;
    weights_.recurrent =
        &add_weight(cell + "recurrent_kernel", {options_.units, columns}, options_.recurrent_initializer);
    weights_.recurrent->regularizer = options_.recurrent_regularizer;
    weights_.recurrent->constraint = options_.recurrent_constraint;
    if (!options_.use_bias) return;
    const Shape shape = kind_ == Recurrence::kGru ? Shape{2, columns} : Shape{columns};
    weights_.bias = &add_weight(cell + "bias", shape, options_.bias_initializer);
    weights_.bias->regularizer = options_.bias_regularizer;
    weights_.bias->constraint = options_.bias_constraint;
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    return inputs[0][0] * (inputs[0][1] + options_.units) * gate_count(kind_) * options_.units;
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId mask = call.masks.empty() ? -1 : call.masks.front();
    const ValueId out = append_recurrence(builder,
                                          {.kind = kind_,
                                           .units = options_.units,
                                           .hard_gates = options_.recurrent_activation == "hard_sigmoid",
                                           .return_sequences = options_.return_sequences,
                                           .go_backwards = options_.go_backwards,
                                           .dropout = options_.dropout,
                                           .recurrent_dropout = options_.recurrent_dropout,
                                           .mask = mask,
                                           .weights = weights_,
                                           .name = call.name},
                                          call.inputs[0]);
    if (mask < 0 || !options_.return_sequences) return out;
    *call.mask = mask;
    if (!options_.zero_output_for_mask) return out;
    const ValueId order =
        options_.go_backwards ? append_permute(builder, mask, {0, 1}, call.name + " mask", 1) : mask;
    return append_mask_scale(builder, out, order, call.name);
  }

 protected:
  // Keras' keys but those of one of the two.
  Config recurrent_config() const {
    Config config = Layer::config();
    config.set("return_sequences", options_.return_sequences);
    config.set("return_state", false);
    config.set("go_backwards", options_.go_backwards);
    config.set("stateful", false);
    config.set("unroll", false);
    if (options_.zero_output_for_mask) config.set("zero_output_for_mask", true);
    config.set("units", options_.units);
    config.set("activation", "tanh");
    config.set("recurrent_activation", options_.recurrent_activation);
    config.set("use_bias", options_.use_bias);
    config.set("kernel_initializer", initializer_config(options_.kernel_initializer));
    config.set("recurrent_initializer", initializer_config(options_.recurrent_initializer));
    config.set("bias_initializer", initializer_config(options_.bias_initializer));
    config.set("kernel_regularizer", regularizer_config(options_.kernel_regularizer));
    config.set("recurrent_regularizer", regularizer_config(options_.recurrent_regularizer));
    config.set("bias_regularizer", regularizer_config(options_.bias_regularizer));
    config.set("activity_regularizer", regularizer_config(options_.activity_regularizer));
    config.set("kernel_constraint", constraint_config(options_.kernel_constraint));
    config.set("recurrent_constraint", constraint_config(options_.recurrent_constraint));
    config.set("bias_constraint", constraint_config(options_.bias_constraint));
    config.set("dropout", options_.dropout);
    config.set("recurrent_dropout", options_.recurrent_dropout);
    config.set("implementation", options_.recurrent_dropout > 0.0f ? 1 : 2);  // as tf.keras asks for
    return config;
  }

  Options options_;
  RecurrentWeights weights_;

 private:
  Recurrence kind_;
};

class LstmLayer final : public RecurrentLayer<layers::LSTM> {
 public:
  explicit LstmLayer(const layers::LSTM& options) : RecurrentLayer(options, Recurrence::kLstm) {}
  std::string_view class_name() const override { return "LSTM"; }
  void build(std::span<const Shape> inputs) override {
    RecurrentLayer::build(inputs);
    if (!weights_.bias || !options_.unit_forget_bias) return;
    // Keras draws the other parts by the initializer, which is zeros nearly always.
    std::vector<float>& values = weights_.bias->host;
    values.resize(static_cast<size_t>(4 * options_.units));
    options_.bias_initializer.fill(weights_.bias->shape, weights_.bias->key, values);
    std::fill_n(values.begin() + options_.units, options_.units, 1.0f);
  }
  Config config() const override {
    Config config = recurrent_config();
    config.set("unit_forget_bias", options_.unit_forget_bias);
    return config;
  }
};

class GruLayer final : public RecurrentLayer<layers::GRU> {
 public:
  explicit GruLayer(const layers::GRU& options)
      : RecurrentLayer(options, options.reset_after ? Recurrence::kGru : Recurrence::kGruResetBefore) {}
  std::string_view class_name() const override { return "GRU"; }
  Config config() const override {
    Config config = recurrent_config();
    config.set("reset_after", options_.reset_after);
    return config;
  }
};

template <class Options>
Options options_from(const ConfigView& config) {
  for (const char* key : {"return_state", "stateful", "time_major"}) config.require_unset(key);
  config.require_string("activation", "tanh");
  Options options;
  options.recurrent_activation = config.string("recurrent_activation", "sigmoid");
  if (!is_gate_function(options.recurrent_activation)) {
    raise<FileError>("{}: the recurrent_activation \"{}\" is not supported, sigmoid and hard_sigmoid are",
                     config.where(), options.recurrent_activation);
  }
  options.units = config["units"].integer();
  options.return_sequences = config.boolean("return_sequences", false);
  options.go_backwards = config.boolean("go_backwards", false);
  options.dropout = config.real("dropout", 0.0f);
  options.recurrent_dropout = config.real("recurrent_dropout", 0.0f);
  options.zero_output_for_mask = config.boolean("zero_output_for_mask", false);
  options.use_bias = config.boolean("use_bias", true);
  options.kernel_initializer = initializer_from(config, "kernel_initializer", "glorot_uniform");
  options.recurrent_initializer = initializer_from(config, "recurrent_initializer", "orthogonal");
  options.bias_initializer = initializer_from(config, "bias_initializer", "zeros");
  options.kernel_regularizer = regularizer_from(config, "kernel_regularizer");
  options.recurrent_regularizer = regularizer_from(config, "recurrent_regularizer");
  options.bias_regularizer = regularizer_from(config, "bias_regularizer");
  options.activity_regularizer = regularizer_from(config, "activity_regularizer");
  options.kernel_constraint = constraint_from(config, "kernel_constraint");
  options.recurrent_constraint = constraint_from(config, "recurrent_constraint");
  options.bias_constraint = constraint_from(config, "bias_constraint");
  options.name = config.string("name", "");
  return options;
}

std::shared_ptr<Layer> lstm_from(const ConfigView& config) {
  return layers::make_layer(std::get<layers::LSTM>(recurrent_options_from("LSTM", config)));
}
std::shared_ptr<Layer> gru_from(const ConfigView& config) {
  return layers::make_layer(std::get<layers::GRU>(recurrent_options_from("GRU", config)));
}

constexpr std::array<LayerClass, 2> kClasses{{{"LSTM", &lstm_from}, {"GRU", &gru_from}}};

}  // namespace

RecurrentOptions recurrent_options_from(std::string_view class_name, const ConfigView& config) {
  if (class_name == "LSTM") {
    auto options = options_from<layers::LSTM>(config);
    options.unit_forget_bias = config.boolean("unit_forget_bias", true);
    return options;
  }
  if (class_name != "GRU") raise<FileError>("{}: expected LSTM or GRU, got {}", config.where(), class_name);
  auto options = options_from<layers::GRU>(config);
  options.reset_after = config.boolean("reset_after", false);  // absent in Keras before it had a choice
  return options;
}

std::span<const LayerClass> recurrent_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const LSTM& options) {
  return std::make_shared<LstmLayer>(options);
}
std::shared_ptr<Layer> layers::make_layer(const GRU& options) {
  return std::make_shared<GruLayer>(options);
}

}  // namespace rondo
