#include "models/layers/wrappers.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "models/graph/permute_step.h"
#include "models/graph/plan_builder.h"
#include "models/layers/config_parts.h"
#include "models/layers/join.h"
#include "models/layers/merge.h"
#include "models/layers/recurrent_config.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

Config object_config(const Layer& layer) {
  return {{"module", "keras.layers"},
          {"class_name", layer.class_name()},
          {"config", layer.config()},
          {"registered_name", nullptr}};
}

std::string lower_case(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// One direction: masked steps give zeros, as tf.keras forces them to.
std::shared_ptr<Layer> direction(const RecurrentOptions& of, bool turned) {
  return std::visit(
      [&](auto options) {
        options.zero_output_for_mask = options.return_sequences;
        if (turned) options.go_backwards = !options.go_backwards;
        return layers::make_layer(options);
      },
      of);
}

class BidirectionalLayer final : public Layer {
 public:
  explicit BidirectionalLayer(const layers::Bidirectional& options)
      : Layer(options.name),
        merge_mode_(options.merge_mode),
        forward_(direction(options.of, false)),
        backward_(direction(options.of, true)) {
    std::visit([&](const auto& of) { sequences_ = of.return_sequences; }, options.of);
    if (merge_mode_ == "concat") merge_ = layers::make_layer(layers::Concatenate{});
    if (merge_mode_ == "sum") merge_ = layers::make_layer(layers::Add{});
    if (merge_mode_ == "mul") merge_ = layers::make_layer(layers::Multiply{});
    if (merge_mode_ == "ave") merge_ = layers::make_layer(layers::Average{});
    require(merge_ != nullptr, "{}: merge_mode is concat, sum, mul or ave, got \"{}\"", title(), merge_mode_);
    require(!forward_->activity_regularizer(), "{}: give the activity_regularizer to a layer behind it",
            title());
    if (forward_->name().empty()) forward_->set_name(lower_case(forward_->class_name()));
  }
  std::string_view class_name() const override { return "Bidirectional"; }
  Config config() const override {
    Config config = Layer::config();
    config.set("layer", object_config(*forward_));
    config.set("merge_mode", merge_mode_);
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape one = forward_->output_shape(inputs);
    return merge_->output_shape(std::array{one, one});
  }
  void build(std::span<const Shape> inputs) override {
    forward_->build(inputs);
    backward_->build(inputs);
    adopt_weights(*forward_, "forward_" + forward_->name() + "/");
    adopt_weights(*backward_, "backward_" + forward_->name() + "/");
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    return 2 * forward_->multiply_adds(inputs);
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const ValueId there = direction_of(builder, call, *forward_, " forward");
    ValueId back = direction_of(builder, call, *backward_, " backward");
    if (sequences_) back = append_permute(builder, back, {0, 1, 2}, call.name + " turned", 1);
    if (sequences_ && call.masked()) *call.mask = call.masks.front();
    const std::array both{there, back};
    ValueId no_mask = -1;
    return merge_->compile(builder, {.inputs = both, .name = call.name, .mask = &no_mask});
  }

 private:
  static ValueId direction_of(PlanBuilder& builder, const Call& call, Layer& layer, const char* which) {
    ValueId mask = -1;
    return layer.compile(
        builder, {.inputs = call.inputs, .name = call.name + which, .masks = call.masks, .mask = &mask});
  }

  std::string merge_mode_;
  bool sequences_ = false;
  std::shared_ptr<Layer> forward_, backward_, merge_;
};

// Each row for itself, whatever the others are: only such layers can take time steps for rows.
constexpr std::array<std::string_view, 18> kByRow{"Dense",
                                                  "Conv2D",
                                                  "DepthwiseConv2D",
                                                  "SeparableConv2D",
                                                  "MaxPooling2D",
                                                  "AveragePooling2D",
                                                  "GlobalMaxPooling2D",
                                                  "GlobalAveragePooling2D",
                                                  "MaxPooling1D",
                                                  "AveragePooling1D",
                                                  "Flatten",
                                                  "Activation",
                                                  "ReLU",
                                                  "LeakyReLU",
                                                  "ELU",
                                                  "Softmax",
                                                  "LayerNormalization",
                                                  "ZeroPadding2D"};

class TimeDistributedLayer final : public Layer {
 public:
  explicit TimeDistributedLayer(const layers::TimeDistributed& options)
      : Layer(options.name), inner_(options.of.layer()) {
    require(inner_ != nullptr, "{} needs a layer", title());
    const bool by_row = std::find(kByRow.begin(), kByRow.end(), inner_->class_name()) != kByRow.end();
    if (!by_row) {
      std::string names;
      for (const std::string_view name : kByRow) names += (names.empty() ? "" : ", ") + std::string(name);
      raise<InvalidArgument>("{} takes layers that work on each row by itself ({}), got {}", title(), names,
                             inner_->title());
    }
    require(!inner_->activity_regularizer(), "{}: give the activity_regularizer to a layer behind it",
            title());
    require(inner_->weights().empty(), "{}: {} has weights already: it was called before", title(),
            inner_->title());
    if (inner_->name().empty()) inner_->set_name(lower_case(inner_->class_name()));
  }
  std::string_view class_name() const override { return "TimeDistributed"; }
  bool passes_mask() const override { return true; }
  bool takes_16_bits() const override { return inner_->takes_16_bits(); }
  Config config() const override {
    Config config = Layer::config();
    config.set("layer", object_config(*inner_));
    return config;
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    return inner_->output_shape(step_of(inputs)).batched(inputs[0][0]);
  }
  void build(std::span<const Shape> inputs) override {
    inner_->build(step_of(inputs));
    adopt_weights(*inner_, "layer/");
  }
  int64_t multiply_adds(std::span<const Shape> inputs) const override {
    return inputs[0][0] * inner_->multiply_adds(step_of(inputs));
  }
  ValueId compile(PlanBuilder& builder, const Call& call) override {
    const Shape shape = builder.desc(call.inputs[0]).shape;
    const Shape sample = shape.sample();
    const std::array rows{builder.reshape(call.inputs[0], sample.sample().batched(shape[0] * sample[0]))};
    ValueId no_mask = -1;
    const ValueId out =
        inner_->compile(builder, {.inputs = rows, .name = call.name, .masks = {-1}, .mask = &no_mask});
    const Shape result = builder.desc(out).shape.sample().batched(sample[0]);
    return builder.reshape(out, result.batched(shape[0]));
  }

 private:
  std::array<Shape, 1> step_of(std::span<const Shape> inputs) const {
    require_inputs(inputs, 1);
    require(inputs[0].rank() >= 2 && inputs[0].rank() + 1 <= Shape::kMaxRank,
            "{} needs samples (time, ...), got shape {}", title(), inputs[0].text());
    return {inputs[0].sample()};
  }

  std::shared_ptr<Layer> inner_;
};

std::shared_ptr<Layer> time_distributed_from(const ConfigView& config) {
  const ConfigObject object = read_object(config["layer"]);
  return layers::make_layer(
      layers::TimeDistributed{.of = LayerHandle(layer_from_config(object.class_name, object.config)),
                              .name = config.string("name", "")});
}

// Keras 3 always writes both layers: here the other one can only walk the other way.
void check_backward_layer(const ConfigView& config, const ConfigObject& forward) {
  const auto found = config.find("backward_layer");
  if (!found) return;
  const ConfigObject backward = read_object(*found);
  bool alike = backward.class_name == forward.class_name && backward.config.boolean("go_backwards", false) !=
                                                                forward.config.boolean("go_backwards", false);
  for (const char* key :
       {"units", "return_sequences", "use_bias", "reset_after", "dropout", "recurrent_dropout"}) {
    const auto a = forward.config.find(key), b = backward.config.find(key);
    if (!alike || !a || !b) continue;
    if (a->is_integer()) {
      alike = a->integer() == b->integer();
    } else if (a->value().as<bool>() != nullptr) {
      alike = a->boolean() == b->boolean();
    } else {
      alike = a->number() == b->number();
    }
  }
  if (!alike) found->fail("a layer like the forward one that walks the other way");
}

std::shared_ptr<Layer> bidirectional_from(const ConfigView& config) {
  const ConfigObject object = read_object(config["layer"]);
  check_backward_layer(config, object);
  RecurrentOptions of = recurrent_options_from(object.class_name, object.config);
  std::visit(
      [](auto& options) {
        constexpr std::string_view kForward = "forward_";  // Keras 3
        if (options.name.starts_with(kForward)) options.name.erase(0, kForward.size());
      },
      of);
  return layers::make_layer(layers::Bidirectional{
      .of = std::move(of), .merge_mode = config["merge_mode"].string(), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 2> kClasses{
    {{"Bidirectional", &bidirectional_from}, {"TimeDistributed", &time_distributed_from}}};

}  // namespace

std::span<const LayerClass> wrapper_classes() {
  return kClasses;
}

std::shared_ptr<Layer> layers::make_layer(const Bidirectional& options) {
  return std::make_shared<BidirectionalLayer>(options);
}
std::shared_ptr<Layer> layers::make_layer(const TimeDistributed& options) {
  return std::make_shared<TimeDistributedLayer>(options);
}

}  // namespace rondo
