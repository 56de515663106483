#include "models/layers/merge.h"

#include <array>
#include <limits>

#include "models/graph/broadcast_step.h"
#include "models/graph/config.h"
#include "models/graph/mask_step.h"
#include "models/graph/plan_builder.h"
#include "models/layers/registry.h"
#include "runtime/base/error.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AddLayer final : public Layer {
 public:
  explicit AddLayer(const layers::Add& options) : Layer(options.name) {}
  std::string_view class_name() const override { return "Add"; }
  bool takes_16_bits() const override { return true; }
  bool is_sum() const override { return true; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() >= 2, "{} needs at least two inputs, got {}", title(), inputs.size());
    return joined_shape(inputs, title());
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    join_masks(builder, call);
    const std::vector<ValueId> inputs = append_broadcasts(builder, call);
    builder.tensor(inputs[0]);
    auto& kernel = builder.own(builder.backend().add(builder.desc(inputs[0])));
    const Layout layout = kernel.desc().layout;
    std::vector<ValueId> terms;
    for (const ValueId input : inputs) terms.push_back(builder.in_layout(input, layout));
    // With more terms, writing over the first would be wrong where a later one is the same tensor.
    const bool in_place = terms.size() == 2 && builder.may_overwrite(terms[0]);
    const ValueId out =
        in_place ? builder.overwrite(terms[0], call.name) : builder.add_value(kernel.desc(), call.name);
    ValueId sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      const Tensor& a = builder.tensor(sum);
      const Tensor& b = builder.tensor(terms[i]);
      const Tensor& to = builder.tensor(out);
      builder.add_step({.name = call.name,
                        .kernel = &kernel,
                        .reads = {sum, terms[i]},
                        .writes = {out},
                        .run = [&kernel, &a, &b, &to](const Execution& on) { kernel.run(on, a, b, to); }});
      sum = out;
    }
    builder.on_backward(out, [&builder, terms](Gradient gradient) {
      for (const ValueId term : terms) builder.add_gradient(term, {gradient.id, false});
    });
    return out;
  }
};

// The kernel takes vectors of tensors: they are made once and only pointed to the plan's memory in a step.
struct ConcatOperands {
  std::vector<const Tensor*> parts;
  std::vector<Tensor> tensors;

  explicit ConcatOperands(PlanBuilder& builder, const std::vector<ValueId>& values) {
    for (const ValueId value : values) {
      parts.push_back(&builder.tensor(value));
      tensors.push_back(*parts.back());
    }
  }
  const std::vector<Tensor>& now() {
    for (size_t i = 0; i < parts.size(); ++i) tensors[i].data = parts[i]->data;
    return tensors;
  }
};

class ConcatenateLayer final : public Layer {
 public:
  explicit ConcatenateLayer(const layers::Concatenate& options) : Layer(options.name), axis_(options.axis) {}
  std::string_view class_name() const override { return "Concatenate"; }
  bool takes_16_bits() const override { return true; }
  Config config() const override {
    Config config = Layer::config();
    config.set("axis", axis_);
    return config;
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() >= 2, "{} needs at least two inputs, got {}", title(), inputs.size());
    const int rank = inputs[0].rank();
    const int axis = axis_ < 0 ? rank + axis_ : axis_ - 1;
    require(axis >= 0 && axis < rank,
            "{}: axis {} is not an axis of a sample of shape {}; give 1 to {} (0 is the batch) or -1 to {}",
            title(), axis_, inputs[0].text(), rank, -rank);
    std::vector<int64_t> extents(inputs[0].extents().begin(), inputs[0].extents().end());
    for (size_t i = 1; i < inputs.size(); ++i) {
      bool fits = inputs[i].rank() == rank;
      for (int other = 0; fits && other < rank; ++other) {
        fits = other == axis || inputs[i][other] == inputs[0][other];
      }
      require(fits, "{} needs inputs that differ in axis {} only, got {} and {}", title(), axis_,
              inputs[0].text(), inputs[i].text());
      extents[static_cast<size_t>(axis)] += inputs[i][axis];
    }
    return Shape(extents);
  }

  ValueId compile(PlanBuilder& builder, const Call& call) override {
    pass_masks(builder, call);
    ConcatSpec spec{.inputs = {}, .axis = axis_};
    std::vector<ValueId> parts;
    for (const ValueId input : call.inputs) {
      parts.push_back(builder.canonical(input));
      spec.inputs.push_back(builder.desc(parts.back()));
    }
    auto& kernel = builder.own(builder.backend().concat(spec));
    const ValueId out = builder.add_value(kernel.output(), call.name);
    const Tensor& to = builder.tensor(out);
    auto operands = std::make_shared<ConcatOperands>(builder, parts);
    builder.add_step(
        {.name = call.name,
         .kernel = &kernel,
         .reads = parts,
         .writes = {out},
         .run = [&kernel, &to, operands](const Execution& on) { kernel.join(on, operands->now(), to); }});
    builder.on_backward(out, [&builder, &kernel, parts, name = call.name](Gradient gradient) {
      append_split(builder, kernel, parts, gradient, name);
    });
    return out;
  }

 private:
  // As Keras does it: along the last axis a position counts where all inputs say so; along another one the
  // masks are joined as the inputs are, and an input without a mask counts everything.
  void pass_masks(PlanBuilder& builder, const Call& call) const {
    if (!call.masked()) return;
    const int rank = builder.desc(call.inputs[0]).shape.rank();
    if (axis_ == -1 || axis_ == rank - 1) return join_masks(builder, call);
    ConcatSpec spec{.inputs = {}, .axis = axis_ < 0 ? rank + axis_ : axis_};
    std::vector<ValueId> parts = call.masks;
    for (size_t i = 0; i < parts.size(); ++i) {
      // Nothing is equal to NaN.
      if (parts[i] < 0) parts[i] = append_find_mask(builder, call.inputs[i], kNan, false, call.name);
      spec.inputs.push_back(builder.desc(parts[i]));
    }
    auto& kernel = builder.own(builder.backend().concat(spec));
    const ValueId out = builder.add_value(kernel.output(), call.name + " mask");
    const Tensor& to = builder.tensor(out);
    auto operands = std::make_shared<ConcatOperands>(builder, parts);
    builder.add_step(
        {.name = call.name + ": join masks",
         .kernel = &kernel,
         .reads = parts,
         .writes = {out},
         .run = [&kernel, &to, operands](const Execution& on) { kernel.join(on, operands->now(), to); }});
    builder.keep(out);
    *call.mask = out;
  }
  static void append_split(PlanBuilder& builder, ConcatKernel& kernel, const std::vector<ValueId>& parts,
                           const Gradient& gradient, const std::string& name) {
    std::vector<ValueId> results;
    for (const ValueId part : parts) {
      results.push_back(builder.add_value(builder.desc(part), name + " gradient"));
    }
    const Tensor& dy = builder.tensor(gradient.id);
    auto operands = std::make_shared<ConcatOperands>(builder, results);
    builder.add_step(
        {.name = name + ": gradient",
         .kernel = &kernel,
         .reads = {gradient.id},
         .writes = results,
         .run = [&kernel, &dy, operands](const Execution& on) { kernel.split(on, dy, operands->now()); }});
    for (size_t i = 0; i < parts.size(); ++i) builder.add_gradient(parts[i], {results[i], true});
  }

  int axis_;
};

std::shared_ptr<Layer> add_from(const ConfigView& config) {
  return layers::make_layer(layers::Add{.name = config.string("name", "")});
}

std::shared_ptr<Layer> concatenate_from(const ConfigView& config) {
  const int64_t axis = config.integer("axis", -1);
  if (axis < -Shape::kMaxRank || axis > Shape::kMaxRank) config["axis"].fail("an axis");
  return layers::make_layer(
      layers::Concatenate{.axis = static_cast<int>(axis), .name = config.string("name", "")});
}

constexpr std::array<LayerClass, 2> kClasses{{{"Add", &add_from}, {"Concatenate", &concatenate_from}}};

}  // namespace

std::span<const LayerClass> merge_classes() {
  return kClasses;
}

namespace layers {

std::shared_ptr<Layer> make_layer(const Add& options) {
  return std::make_shared<AddLayer>(options);
}
std::shared_ptr<Layer> make_layer(const Concatenate& options) {
  return std::make_shared<ConcatenateLayer>(options);
}

}  // namespace layers
}  // namespace rondo
