#include "models/layers/recurrent.h"

#include <algorithm>
#include <array>

#include "models/layers/config_parts.h"
#include "models/layers/recurrence.h"
#include "models/layers/registry.h"
#include "models/layers/regularizer_config.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

// What both layers are beyond their options.
template <class Options>
class RecurrentLayer : public Layer {
 public:
  explicit RecurrentLayer(const Options& options, Recurrence kind)
      : Layer(options.name), options_(options), kind_(kind) {}

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
    weights_.recurrent =
        &add_weight(cell + "recurrent_kernel", {options_.units, columns}, options_.recurrent_initializer);
    weights_.recurrent->regularizer = options_.recurrent_regularizer;
    if (!options_.use_bias) return;
    const Shape shape = kind_ == Recurrence::kLstm ? Shape{columns} : Shape{2, columns};
    weights_.bias = &add_weight(cell + "bias", shape, options_.bias_initializer);
    weights_.bias->regularizer = options_.bias_regularizer;
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    return inputs[0][0] * (inputs[0][1] + options_.units) * gate_count(kind_) * options_.units;
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    return append_recurrence(builder,
                             {.kind = kind_,
                              .units = options_.units,
                              .return_sequences = options_.return_sequences,
                              .weights = weights_,
                              .name = call.name},
                             call.inputs[0]);
  }

 protected:
  // Keras' keys but those of one of the two.
  Config recurrent_config() const {
    Config config = Layer::config();
    config.set("return_sequences", options_.return_sequences);
    for (const char* key : {"return_state", "go_backwards", "stateful", "unroll"}) {
      config.set(key, false);
    }
    config.set("units", options_.units);
    config.set("activation", "tanh");
    config.set("recurrent_activation", "sigmoid");
    config.set("use_bias", options_.use_bias);
    config.set("kernel_initializer", initializer_config(options_.kernel_initializer));
    config.set("recurrent_initializer", initializer_config(options_.recurrent_initializer));
    config.set("bias_initializer", initializer_config(options_.bias_initializer));
    config.set("kernel_regularizer", regularizer_config(options_.kernel_regularizer));
    config.set("recurrent_regularizer", regularizer_config(options_.recurrent_regularizer));
    config.set("bias_regularizer", regularizer_config(options_.bias_regularizer));
    for (const char* key :
         {"activity_regularizer", "kernel_constraint", "recurrent_constraint", "bias_constraint"}) {
      config.set(key, nullptr);
    }
    config.set("dropout", 0.0);
    config.set("recurrent_dropout", 0.0);
    config.set("implementation", 2);
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
  explicit GruLayer(const layers::GRU& options) : RecurrentLayer(options, Recurrence::kGru) {}
  std::string_view class_name() const override { return "GRU"; }
  Config config() const override {
    Config config = recurrent_config();
    config.set("reset_after", true);
    return config;
  }
};

template <class Options>
Options options_from(const ConfigView& config) {
  for (const char* key : {"return_state", "go_backwards", "stateful", "time_major", "activity_regularizer",
                          "kernel_constraint", "recurrent_constraint", "bias_constraint"}) {
    config.require_unset(key);
  }
  config.require_string("activation", "tanh");
  config.require_string("recurrent_activation", "sigmoid");
  for (const char* key : {"dropout", "recurrent_dropout"}) {
    if (config.number(key, 0.0) != 0.0)
      config[key].fail("0: dropout inside of recurrent layers is not there");
  }
  Options options;
  options.units = config["units"].integer();
  options.return_sequences = config.boolean("return_sequences", false);
  options.use_bias = config.boolean("use_bias", true);
  options.kernel_initializer = initializer_from(config, "kernel_initializer", "glorot_uniform");
  options.recurrent_initializer = initializer_from(config, "recurrent_initializer", "orthogonal");
  options.bias_initializer = initializer_from(config, "bias_initializer", "zeros");
  options.kernel_regularizer = regularizer_from(config, "kernel_regularizer");
  options.recurrent_regularizer = regularizer_from(config, "recurrent_regularizer");
  options.bias_regularizer = regularizer_from(config, "bias_regularizer");
  options.name = config.string("name", "");
  return options;
}

std::shared_ptr<Layer> lstm_from(const ConfigView& config) {
  auto options = options_from<layers::LSTM>(config);
  options.unit_forget_bias = config.boolean("unit_forget_bias", true);
  return layers::make_layer(options);
}

std::shared_ptr<Layer> gru_from(const ConfigView& config) {
  if (!config.boolean("reset_after", false)) {
    config["reset_after"].fail("true: the reset gate behind the product is the one that is there");
  }
  return layers::make_layer(options_from<layers::GRU>(config));
}

constexpr std::array<LayerClass, 2> kClasses{{{"LSTM", &lstm_from}, {"GRU", &gru_from}}};

}  // namespace

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
