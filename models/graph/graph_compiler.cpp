#include "models/graph/graph_compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "models/graph/activation_step.h"
#include "models/graph/graph.h"
#include "models/graph/objective.h"
#include "models/graph/plan_builder.h"
#include "runtime/base/error.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/loss.h"

namespace rondo {
namespace {

class GraphCompiler {
 public:
  GraphCompiler(const Graph& graph, std::vector<KernelBackend*> backends, Stream& stream,
                const PlanRequest& request)
      : graph_(graph),
        request_(request),
        builder_(std::move(backends), stream, request.rows,
                 request.purpose == Purpose::kTrain ? Mode::kTraining : Mode::kInference,
                 request.reuse_memory, request.precision) {
    if (request.purpose == Purpose::kPredict || request.objective == nullptr) return;
    for (const Objective& objective : request.objective->outputs) {
      RONDO_CHECK(objective.output < graph.outputs().size());
      heads_.push_back({&objective, graph.outputs()[objective.output].node().get()});
    }
  }

  std::unique_ptr<Plan> run() {
    for (const auto& node : graph_.nodes()) has_masks_ = has_masks_ || node->layer->makes_mask();
    for (const auto& node : graph_.nodes()) compile_node(*node);
    for (const SymbolicTensor& input : graph_.inputs()) {
      builder_.plan().inputs.push_back(values_.at(input.node().get()));
    }
    if (heads_.empty()) {
      append_outputs();
    } else {
      append_objectives();
    }
    return builder_.finish();
  }

 private:
  // An output with an objective.
  struct Head {
    const Objective* objective = nullptr;
    const Node* node = nullptr;
    bool logits = false;         // it is what stands in front of its activation
    ValueId prediction = -1;     // canonical float32
    ValueId probabilities = -1;  // made from logits where metrics need them
    ValueId label = -1;
    ValueId weights = -1;
  };

  // The loss takes logits where an output ends in the function that belongs to it, as tf.keras does.
  bool takes_logits(const Node& node) const {
    const auto is_node = [&](const SymbolicTensor& output) { return output.node().get() == &node; };
    if (!graph_.consumers(node).empty() || node.layer->activity_regularizer() ||
        std::count_if(graph_.outputs().begin(), graph_.outputs().end(), is_node) != 1) {
      return false;
    }
    const auto head =
        std::find_if(heads_.begin(), heads_.end(), [&](const Head& each) { return each.node == &node; });
    if (head == heads_.end() || !head->objective->has_loss) return false;
    const ActivationKind last = node.layer->output_activation();
    switch (head->objective->loss) {
      case Loss::kCategoricalCrossentropy:
      case Loss::kSparseCategoricalCrossentropy:
        return last == ActivationKind::kSoftmax;
      case Loss::kBinaryCrossentropy:
        return last == ActivationKind::kSigmoid;
      default:
        return false;
    }
  }

  // Data comes in on the first device.
  static int device_of(const Node& node) { return node.inputs.empty() ? 0 : std::max(node.device, 0); }

  // The only call that reads this one's output; null where there are others.
  const Node* only_reader(const Node& node) const {
    const auto& readers = graph_.consumers(node);
    return readers.size() != 1 || graph_.is_output(node) ? nullptr : readers.front();
  }

  // The element-wise activation layer that can run inside this call's kernel.
  const Node* fused_activation(const Node& node) const {
    const Node* next = only_reader(node);
    if (next == nullptr || !next->layer->is_activation() || takes_logits(*next)) return nullptr;
    if (node.layer->activity_regularizer() || next->layer->activity_regularizer()) return nullptr;
    if (device_of(*next) != device_of(node)) return nullptr;
    const ActivationKind kind = next->layer->output_activation();
    if (fuses_relu(*node.layer) && kind == ActivationKind::kRelu) return next;
    return node.layer->fuses_activation() && fused_function(kind) ? next : nullptr;
  }

  bool fuses_relu(const Layer& layer) const {
    return layer.fuses_sum_and_relu() && builder_.backend().fuses_norm(builder_.compute_dtype());
  }

  // The sum of this call and one other that only a ReLU reads: the three run in one kernel, where the sum
  // stands. Null where it is not so. Of two such calls in one sum the first is meant.
  const Node* fused_sum(const Node& node) const {
    const Node* sum = fuses_relu(*node.layer) ? only_reader(node) : nullptr;
    if (sum == nullptr || !sum->layer->is_sum() || sum->inputs.size() != 2 || waiting_.contains(sum) ||
        has_masks_)
      return nullptr;
    if (sum->inputs[0].shape() != sum->inputs[1].shape()) return nullptr;
    const Node* next = only_reader(*sum);
    if (device_of(*sum) != device_of(node) || (next != nullptr && device_of(*next) != device_of(node)))
      return nullptr;
    const bool relu = next != nullptr && next->layer->is_activation() && !takes_logits(*next) &&
                      next->layer->output_activation() == ActivationKind::kRelu;
    return relu ? sum : nullptr;
  }

  void compile_node(const Node& node) {
    if (const Node* sum = fused_sum(node)) {
      waiting_.emplace(sum, &node);
      return;
    }
    const auto waiting = waiting_.find(&node);
    if (waiting == waiting_.end()) {
      compile_call(node, node, -1);
      return;
    }
    const Node& first = *waiting->second;
    const bool at_front = node.inputs.front().node().get() == &first;
    compile_call(first, node, values_.at(node.inputs[at_front ? 1 : 0].node().get()));
    fused_.emplace(only_reader(node), true);
  }

  // The steps of `node`; what they give is the output of `as`, which is `node` unless it adds `addend`, too.
  void compile_call(const Node& node, const Node& as, ValueId addend) {
    std::vector<ValueId> inputs;
    bool needs_gradient = node.layer->count_params(true) > 0;
    for (const SymbolicTensor& input : node.inputs) inputs.push_back(values_.at(input.node().get()));
    std::vector<ValueId> reads = inputs;
    if (addend >= 0) reads.push_back(addend);
    for (const ValueId read : reads) needs_gradient = needs_gradient || builder_.needs_gradient(read);
    builder_.begin_layer(needs_gradient, reads, device_of(node));
    for (ValueId& input : inputs) input = builder_.on_device(input);
    if (addend >= 0) addend = builder_.on_device(addend);
    const DType dtype = node.layer->takes_16_bits() ? builder_.compute_dtype() : DType::kF32;
    for (ValueId& input : inputs) input = builder_.in_type(input, dtype);
    if (addend >= 0) addend = builder_.in_type(addend, dtype);
    std::vector<ValueId> masks = masks_of(node);
    for (ValueId& each : masks) each = each < 0 ? each : builder_.on_device(each);
    ValueId mask = node.layer->passes_mask() ? masks.front() : -1;
    ValueId out = -1;
    if (fused_.contains(&node)) {
      out = inputs.front();
    } else if (addend >= 0) {
      Layer::Call call{.inputs = inputs, .name = node.layer->name()};
      call.fused = Activation::kRelu;
      call.addend = addend;
      out = node.layer->compile(builder_, call);
    } else {
      Layer::Call call{.inputs = inputs, .name = node.layer->name()};
      call.logits = takes_logits(node);
      call.masks = masks;
      call.mask = &mask;
      if (const Node* activation = fused_activation(node)) {
        call.fused = fused_function(activation->layer->output_activation());
        fused_.emplace(activation, true);
      }
      out = node.layer->compile(builder_, call);
    }
    if (const Regularizer activity = node.layer->activity_regularizer(); activity && !heads_.empty()) {
      builder_.add_activity_penalty(out, activity);
    }
    const int readers = static_cast<int>(graph_.consumers(as).size()) + (graph_.is_output(as) ? 1 : 0);
    builder_.end_layer(out, readers);
    values_[&as] = out;
    if (mask >= 0) output_masks_[&as] = mask;
  }

  std::vector<ValueId> masks_of(const Node& node) const {
    std::vector<ValueId> masks;
    for (const SymbolicTensor& input : node.inputs) {
      const auto found = output_masks_.find(input.node().get());
      masks.push_back(found == output_masks_.end() ? -1 : found->second);
    }
    if (masks.empty()) masks.push_back(-1);  // an Input
    return masks;
  }

  void append_outputs() {
    for (const SymbolicTensor& output : graph_.outputs()) {
      const ValueId value = builder_.canonical(builder_.on_device(values_.at(output.node().get())));
      const ValueId result = builder_.in_type(value, DType::kF32);
      builder_.tensor(result);
      builder_.plan().outputs.push_back(result);
    }
  }

  // The order of the sums is that of Objectives.
  void append_objectives() {
    const bool splits = request_.objective->splits_loss();
    for (Head& head : heads_) {
      if (output_masks_.contains(head.node)) {
        raise<Unavailable>(
            "the output of {} has a mask, which losses and metrics do not take into account: end the model "
            "in a layer that uses the mask up (a recurrent layer without return_sequences, "
            "GlobalAveragePooling1D, Flatten)",
            head.node->layer->title());
      }
      head.logits = takes_logits(*head.node);
      const ValueId last = builder_.on_device(values_.at(head.node));
      head.prediction = builder_.in_type(builder_.canonical(last), DType::kF32);
      add_label(head);
    }
    if (splits) {
      builder_.add_step({.name = "no penalties yet",
                         .reads = {},
                         .writes = {},
                         .run = [sums = request_.sums](const Execution& on) {
                           on.stream.fill_zero(*sums, sizeof(double));
                         }});
    }
    size_t index = splits ? 1 : 0;
    for (const Head& head : heads_) {
      if (head.objective->has_loss) append_loss(head, index++);
    }
    if (request_.objective->sums_loss() && builder_.has_penalties()) {
      raise<Unavailable>(
          "a loss with the reduction \"sum\" and regularizers in one model: penalties are counted as parts "
          "of a mean; take the default reduction, with a learning rate that is higher by as much as a batch "
          "has rows");
    }
    builder_.append_penalties(request_.sums);
    for (Head& head : heads_) {
      for (const NamedMetric& metric : head.objective->metrics) {
        append_metric(metric, head, index);
        index += static_cast<size_t>(metric.sums());
      }
      if (head.objective->counts_weights()) append_metric(sum_of_weights(), head, index++);
    }
    RONDO_CHECK(index == request_.objective->sum_count());
  }

  static NamedMetric sum_of_weights() {
    return {.name = "sum of weights", .metric = Metric::kOnes, .weighted = true};
  }

  void add_label(Head& head) {
    TensorDesc label = builder_.desc(head.prediction);
    if (head.objective->loss == Loss::kSparseCategoricalCrossentropy) {
      const auto extents = label.shape.extents();
      label = {.shape = Shape(extents.first(extents.size() - 1)), .dtype = DType::kI32};
    }
    Plan& plan = builder_.plan();
    head.label = builder_.add_external(label, "label");
    head.weights = builder_.add_external({.shape = Shape{plan.rows}, .dtype = DType::kF32}, "sample weights");
    plan.labels.push_back(head.label);
    plan.weights.push_back(head.weights);
  }

  void append_loss(const Head& head, size_t index) {
    const Objective& objective = *head.objective;
    auto& kernel = builder_.own(builder_.backend().loss({.loss = objective.loss,
                                                         .prediction = builder_.desc(head.prediction),
                                                         .from_logits = head.logits || objective.from_logits,
                                                         .label_smoothing = objective.label_smoothing,
                                                         .delta = objective.delta,
                                                         .sum_positions = objective.sum,
                                                         .gradient_scale = objective.weight}));
    std::vector<ValueId> writes;
    const Tensor* grad = &kEmpty;
    if (builder_.needs_gradient(head.prediction)) {
      const ValueId gradient = builder_.add_value(builder_.desc(head.prediction), "loss gradient");
      builder_.add_gradient(head.prediction, {gradient, true});
      grad = &builder_.tensor(gradient);
      writes.push_back(gradient);
    }
    const Tensor& in = builder_.tensor(head.prediction);
    const Tensor& want = builder_.tensor(head.label);
    const Tensor& weights = builder_.tensor(head.weights);
    builder_.add_step(
        {.name = "loss",
         .kernel = &kernel,
         .reads = {head.prediction, head.label, head.weights},
         .writes = writes,
         .run = [&kernel, &in, &want, &weights, sums = request_.sums, index, grad](const Execution& on) {
           kernel.run(on, in, want, *sums + index, *grad, weights);
         }});
  }

  // Some metrics need the probabilities that the loss does without.
  ValueId probabilities(Head& head) {
    if (!head.logits) return head.prediction;
    if (head.probabilities < 0) {
      const ActivationKind last = head.node->layer->output_activation();
      head.probabilities = append_activation_copy(builder_, head.prediction, last, "metrics");
    }
    return head.probabilities;
  }

  void append_metric(const NamedMetric& metric, Head& head, size_t index) {
    if (metric.loss) return append_loss_metric(metric, head, index);
    const bool sigmoid = head.logits && head.node->layer->output_activation() == ActivationKind::kSigmoid;
    const bool by_rank = metric.metric == Metric::kCategoricalAccuracy ||
                         metric.metric == Metric::kSparseCategoricalAccuracy ||
                         metric.metric == Metric::kTopKCategoricalAccuracy ||
                         metric.metric == Metric::kSparseTopKCategoricalAccuracy ||
                         metric.metric == Metric::kOnes;
    const bool on_logits = by_rank || (metric.metric == Metric::kBinaryAccuracy && sigmoid);
    const ValueId from = on_logits ? head.prediction : probabilities(head);
    auto& kernel = builder_.own(builder_.backend().metric({.metric = metric.metric,
                                                           .prediction = builder_.desc(from),
                                                           .from_logits = sigmoid && from == head.prediction,
                                                           .threshold = metric.threshold,
                                                           .k = metric.k,
                                                           .thresholds = metric.thresholds}));
    add_metric_step(metric, kernel, head, from,
                    [&kernel, sums = request_.sums, index](const Execution& on, const Tensor& in,
                                                           const Tensor& want, const Tensor& weights) {
                      kernel.run(on, in, want, *sums + index, weights);
                    });
  }

  // A crossentropy that takes logits takes the loss's, other losses probabilities.
  void append_loss_metric(const NamedMetric& metric, Head& head, size_t index) {
    const bool same = head.logits && (*metric.loss == Loss::kBinaryCrossentropy) ==
                                         (head.node->layer->output_activation() == ActivationKind::kSigmoid);
    const bool on_logits = same && (*metric.loss == Loss::kBinaryCrossentropy ||
                                    *metric.loss == Loss::kCategoricalCrossentropy ||
                                    *metric.loss == Loss::kSparseCategoricalCrossentropy);
    const ValueId from = on_logits ? head.prediction : probabilities(head);
    auto& kernel = builder_.own(builder_.backend().loss(
        {.loss = *metric.loss, .prediction = builder_.desc(from), .from_logits = on_logits}));
    add_metric_step(metric, kernel, head, from,
                    [&kernel, sums = request_.sums, index](const Execution& on, const Tensor& in,
                                                           const Tensor& want, const Tensor& weights) {
                      kernel.run(on, in, want, *sums + index, kEmpty, weights);
                    });
  }

  template <class Run>
  void add_metric_step(const NamedMetric& metric, const Kernel& kernel, const Head& head, ValueId from,
                       const Run& run) {
    const Tensor& in = builder_.tensor(from);
    const Tensor& want = builder_.tensor(head.label);
    const Tensor& weights = metric.weighted ? builder_.tensor(head.weights) : kEmpty;
    builder_.add_step(
        {.name = "metric " + metric.name,
         .kernel = &kernel,
         .reads = {from, head.label, head.weights},
         .writes = {},
         .run = [run, &in, &want, &weights](const Execution& on) { run(on, in, want, weights); }});
  }

  inline static const Tensor kEmpty{};

  const Graph& graph_;
  const PlanRequest& request_;
  PlanBuilder builder_;
  std::vector<Head> heads_;  // empty: for prediction
  bool has_masks_ = false;   // some layer makes a mask
  std::unordered_map<const Node*, ValueId> values_;
  std::unordered_map<const Node*, ValueId> output_masks_;  // of the calls whose result has a mask
  std::unordered_map<const Node*, bool> fused_;            // activation calls that an earlier kernel does
  std::unordered_map<const Node*, const Node*> waiting_;   // by sum: the call whose kernel does it
};

[[noreturn]] void raise_too_few(const Graph& graph, std::span<KernelBackend* const> backends) {
  const auto& nodes = graph.nodes();
  const Node& farthest = **std::max_element(
      nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a->device < b->device; });
  std::string available;
  for (size_t d = 0; d < backends.size(); ++d) {
    available += fmt::format("{}{} ({})", d == 0 ? "" : ", ", d, backends[d]->device().name());
  }
  raise<InvalidArgument>(
      "{} is called on device {} (device_scope), so the model wants the devices 0 to {}, but this rank has "
      "{}: "
      "{}. Bind ranks with more (BindOptions::devices_per_rank), or place the layer on one of these",
      farthest.layer->title(), farthest.device, farthest.device, backends.size(), available);
}

}  // namespace

std::unique_ptr<Plan> compile_plan(const Graph& graph, std::span<KernelBackend* const> backends,
                                   Stream& stream, const PlanRequest& request) {
  const std::optional<Graph> flat = graph.flattened();
  const Graph& calls = flat ? *flat : graph;
  const auto devices = static_cast<size_t>(calls.devices());
  if (devices > backends.size()) raise_too_few(calls, backends);
  return GraphCompiler(calls, {backends.begin(), backends.begin() + static_cast<std::ptrdiff_t>(devices)},
                       stream, request)
      .run();
}

}  // namespace rondo
