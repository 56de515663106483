// Losses, gradients and predictions of small graphs against float64 definitions and central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "models/graph/graph_compiler.h"
#include "models/graph/graph_network.h"
#include "models/graph/weights.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/models/twin.h"

namespace rondo::test {
namespace {

constexpr int64_t kRows = 3;

std::vector<float> to_floats(const Array& array) {
  return {array.values.begin(), array.values.end()};
}
Array to_array(const std::vector<float>& values, const Shape& shape) {
  Array array(shape);
  for (size_t i = 0; i < values.size(); ++i) array.values[i] = static_cast<double>(values[i]);
  return array;
}

// Counts what it is told.
struct RecordingSink : GradSink {
  void ready(Parameter& parameter) override {
    EXPECT_TRUE(seen.insert(&parameter).second) << parameter.name << " became ready twice";
  }
  std::set<const Parameter*> seen;
};

class GradientTest : public ::testing::Test {
 protected:
  // Values that differ from 0 and 1, so that each weight matters.
  void randomize(const Graph& graph) {
    uint64_t seed = 100;
    for (Weight* weight : graph.weights()) {
      Array values = random_array(weight->parameter.desc.shape, ++seed);
      const bool variance = weight->name == "moving_variance";
      for (double& value : values.values) value = variance ? 1.0 + 0.5 * std::abs(value) : 0.6 * value;
      weight->host = to_floats(values);
      evaluation.weights[weight->parameter.name] = to_array(weight->host, values.shape);
    }
  }

  // The factors of the network's dropout layers, in graph order, from the kernel itself.
  void draw_masks(const Graph& graph, const StepState& state) {
    uint32_t stream_number = 0;
    for (const auto& node : graph.nodes()) {
      if (node->layer->class_name() != "Dropout") continue;
      const TensorDesc desc{.shape = node->output.batched(kRows)};
      const auto kernel = backend->dropout({.desc = desc, .rate = 0.4f, .stream = stream_number++});
      std::vector<float> ones(static_cast<size_t>(desc.elements()), 1.0f);
      std::vector<float> factors(ones.size());
      const Buffer scratch = device->allocate(kernel->scratch_bytes() + 64);
      const auto stream = device->make_stream();
      kernel->forward({*stream, scratch.data(), &state}, {desc, ones.data()}, {desc, factors.data()});
      evaluation.dropout_masks[node->layer->name()] = to_array(factors, desc.shape);
    }
  }

  double oracle_loss(const Twin& out, const Array& label, Loss loss) {
    evaluation.done.clear();
    return test::loss(out.value(evaluation), label, loss, false);
  }

  void check(const std::vector<Twin>& inputs, const Twin& out, Loss loss = Loss::kMeanSquaredError,
             bool reuse_memory = true) {
    std::vector<SymbolicTensor> places;
    for (const Twin& in : inputs) places.push_back(in.place);
    Graph graph(places, {out.place}, 1);
    randomize(graph);
    const StepState state{.seed = 5, .step = 2, .first_row = 4, .inverse_batch = 0.25f};
    draw_masks(graph, state);

    GraphNetwork network(
        graph, *backend,
        {.nominal_rows = kRows, .objective = Objective{.loss = loss}, .reuse_memory = reuse_memory});
    allocate_gradients(network, *device);
    std::vector<std::vector<float>> data;
    Batch batch;
    batch.rows = kRows;
    for (const SymbolicTensor& place : places) {
      const Array values = random_array(place.shape().batched(kRows), 7 + data.size());
      evaluation.inputs[place.node()->layer->name()] = values;
      data.push_back(to_floats(values));
      batch.inputs.push_back({{.shape = values.shape}, data.back().data()});
    }
    const Array label = make_label(out.place.shape(), loss);
    std::vector<float> label_floats = to_floats(label);
    std::vector<int32_t> classes(label.values.begin(), label.values.end());
    const bool sparse = loss == Loss::kSparseCategoricalCrossentropy;
    batch.label = {{.shape = label.shape, .dtype = sparse ? DType::kI32 : DType::kF32},
                   sparse ? static_cast<void*>(classes.data()) : label_floats.data()};

    std::memset(network.arena().data(), 0xFF, static_cast<size_t>(network.arena().bytes()));
    double sum[1] = {0.0};
    network.forward({.stream = network.stream(), .state = &state}, batch, Mode::kTraining, sum);
    const double expected = oracle_loss(out, label, loss);
    EXPECT_NEAR(sum[0], expected, 1e-5 * std::max(1.0, std::abs(expected)));
    RecordingSink sink;
    network.backward({.stream = network.stream(), .state = &state}, sink);
    check_gradients(network, out, label, loss, sink);
    check_prediction(network, batch, out);
  }

  static Array make_label(const Shape& output, Loss loss) {
    if (loss == Loss::kSparseCategoricalCrossentropy) {
      Array label(Shape{kRows});
      for (int64_t i = 0; i < kRows; ++i) label[i] = static_cast<double>(i % output[0]);
      return label;
    }
    Array label = random_array(output.batched(kRows), 99);
    for (double& value : label.values) value = std::abs(value);  // rows need not sum to 1
    return label;
  }

  // Central differences in every weight.
  void check_gradients(GraphNetwork& network, const Twin& out, const Array& label, Loss loss,
                       const RecordingSink& sink) {
    for (const Parameter* parameter : network.parameters()) {
      if (!parameter->trainable) continue;
      EXPECT_TRUE(sink.seen.contains(parameter)) << parameter->name << " never became ready";
      const Array got =
          to_array(read_canonical(parameter->grad, *backend, network.stream()), parameter->desc.shape);
      const Array at = evaluation.weights.at(parameter->name);
      Array expected = numeric_gradient(
          [&](const Array& weight) {
            evaluation.weights[parameter->name] = weight;
            return oracle_loss(out, label, loss);
          },
          at);
      evaluation.weights[parameter->name] = at;
      for (double& value : expected.values) value *= 0.25;  // inverse_batch
      EXPECT_LE(relative_error(got, expected, 1e-2), 2e-4) << parameter->name;
    }
  }

  // In inference: dropout and batch statistics are off; only graphs without the latter are compared.
  void check_prediction(GraphNetwork& network, const Batch& batch, const Twin& out) {
    evaluation.dropout_masks.clear();
    evaluation.done.clear();
    for (const auto& [name, weight] : evaluation.weights) {
      if (name.ends_with("moving_mean")) return;
    }
    const Array expected = out.value(evaluation);
    std::vector<float> got(expected.values.size());
    network.predict({.stream = network.stream()}, batch, got);
    EXPECT_LE(relative_error(to_array(got, expected.shape), expected), 1e-5);
  }

  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<KernelBackend> backend = make_cpu_backend(*device);
  Evaluation evaluation;
};

TEST_F(GradientTest, DenseChainWithEveryActivation) {
  for (const char* f : {"linear", "tanh", "sigmoid", "softmax"}) {
    SCOPED_TRACE(f);
    const Twin x = input("x", {5});
    const Twin h = apply(layers::Dense{.units = 7, .activation = f, .name = "a"}, x);
    check({x}, apply(layers::Dense{.units = 4, .use_bias = false, .name = "b"}, h));
  }
}

TEST_F(GradientTest, LossesThroughLogits) {
  const Twin x = input("x", {6});
  const Twin h = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "h"}, x);
  for (const bool separate : {false, true}) {
    for (const Loss loss : {Loss::kCategoricalCrossentropy, Loss::kSparseCategoricalCrossentropy,
                            Loss::kBinaryCrossentropy, Loss::kMeanSquaredError}) {
      SCOPED_TRACE(testing::Message() << "loss " << static_cast<int>(loss) << (separate ? ", layer" : ""));
      const char* f = loss == Loss::kBinaryCrossentropy ? "sigmoid" : "softmax";
      const std::string name = "out" + std::to_string(static_cast<int>(loss)) + (separate ? "s" : "");
      const Twin out = separate ? apply(layers::Activation{.activation = f},
                                        apply(layers::Dense{.units = 4, .name = name}, h))
                                : apply(layers::Dense{.units = 4, .activation = f, .name = name}, h);
      check({x}, out, loss);
    }
  }
}

TEST_F(GradientTest, ProbabilitiesThatAreNotTheLossesOwn) {
  const Twin x = input("x", {6});
  const Twin h = apply(layers::Dense{.units = 4, .activation = "sigmoid", .name = "h"}, x);
  check({x}, h, Loss::kCategoricalCrossentropy);
}

TEST_F(GradientTest, ConvolutionsPoolingFlatten) {
  const Twin x = input("x", {9, 8, 2});
  Twin y = apply(
      layers::Conv2D{
          .filters = 8, .kernel_size = {3, 3}, .padding = "same", .activation = "tanh", .name = "c1"},
      x);
  y = apply(layers::AveragePooling2D{.padding = "same"}, y);
  y = apply(layers::Conv2D{.filters = 6,
                           .kernel_size = {3, 2},
                           .strides = {2, 1},
                           .padding = "same",
                           .activation = "sigmoid",
                           .name = "c2"},
            y);
  y = apply(layers::MaxPooling2D{.pool_size = {2, 2}, .strides = {1, 1}}, y);
  y = apply(layers::Flatten{}, y);
  check({x}, apply(layers::Dense{.units = 3, .activation = "softmax", .name = "out"}, y),
        Loss::kSparseCategoricalCrossentropy);
}

TEST_F(GradientTest, GroupsDilationAndStandaloneActivations) {
  const Twin x = input("x", {8, 8, 4});
  Twin y = apply(layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .groups = 2, .name = "c1"}, x);
  y = apply(layers::Activation{.activation = "tanh"}, y);  // fused
  const Twin z = apply(
      layers::Conv2D{
          .filters = 4, .kernel_size = {3, 3}, .dilation_rate = {2, 2}, .use_bias = false, .name = "c2"},
      y);
  const Twin a = apply(layers::Activation{.activation = "sigmoid"}, z);  // not fused: z is read twice
  y = add({z, a});
  y = apply(layers::GlobalAveragePooling2D{}, y);
  check({x}, apply(layers::Dense{.units = 3, .name = "out"}, y));
}

TEST_F(GradientTest, SoftmaxOverChannelsInTheMiddle) {
  const Twin x = input("x", {5, 5, 3});
  Twin y =
      apply(layers::Conv2D{.filters = 5, .kernel_size = {2, 2}, .activation = "softmax", .name = "c1"}, x);
  y = apply(layers::Conv2D{.filters = 3, .kernel_size = {2, 2}, .name = "c2"}, y);
  check({x}, apply(layers::Flatten{}, y));
}

TEST_F(GradientTest, SharedLayersAndTwoInputs) {
  const Twin a = input("a", {6});
  const Twin b = input("b", {6});
  const layers::Dense tower{.units = 5, .activation = "tanh", .name = "tower"};
  const Twin left = apply(tower, a);
  const Twin right = apply(tower, b);
  const layers::Dense square{.units = 5, .activation = "sigmoid", .name = "square"};
  const Twin deep = apply(square, apply(square, left));  // a layer on its own output
  check({a, b}, apply(layers::Dense{.units = 2, .name = "out"}, concatenate({deep, right, left})));
}

TEST_F(GradientTest, SharedConvolutionInBlockedLayout) {
  const Twin a = input("a", {6, 6, 8});
  const layers::Conv2D block{
      .filters = 8, .kernel_size = {3, 3}, .padding = "same", .activation = "tanh", .name = "block"};
  Twin y = apply(block, apply(block, a));
  y = add({y, a, apply(block, y)});
  check({a}, apply(layers::Dense{.units = 2, .name = "out"}, apply(layers::Flatten{}, y)));
}

TEST_F(GradientTest, AddOfOneTensorToItself) {
  const Twin x = input("x", {4});
  const Twin h = apply(layers::Dense{.units = 4, .activation = "tanh", .name = "h"}, x);
  const Twin twice = add({h, h});
  const Twin thrice = add({twice, twice, twice});
  check({x}, apply(layers::Dense{.units = 3, .name = "out"}, thrice));
}

TEST_F(GradientTest, ResidualBranchesWithBatchNormalization) {
  const Twin x = input("x", {6, 6, 3});
  const Twin stem =
      apply(layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .padding = "same", .name = "stem"}, x);
  Twin y = apply(layers::BatchNormalization{.name = "bn1"}, stem);
  y = apply(layers::Activation{.activation = "tanh"}, y);
  y = apply(
      layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .padding = "same", .use_bias = false, .name = "c"},
      y);
  y = apply(layers::BatchNormalization{.scale = false, .name = "bn2"}, y);
  y = apply(layers::Activation{.activation = "sigmoid"}, add({y, stem}));
  y = apply(layers::GlobalAveragePooling2D{}, y);
  check({x}, apply(layers::Dense{.units = 3, .activation = "softmax", .name = "out"}, y),
        Loss::kCategoricalCrossentropy);
}

TEST_F(GradientTest, BatchNormalizationOfRows) {
  const Twin x = input("x", {5});
  Twin y = apply(layers::Dense{.units = 6, .name = "h"}, x);
  y = apply(layers::BatchNormalization{.center = false, .name = "bn"}, y);
  check({x}, apply(layers::Dense{.units = 2, .activation = "tanh", .name = "out"}, y));
}

TEST_F(GradientTest, DropoutInEveryPlace) {
  const Twin x = input("x", {6, 6, 2});
  Twin y = apply(layers::Dropout{.rate = 0.4f, .name = "d0"}, x);
  y = apply(layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .activation = "tanh", .name = "c"}, y);
  y = apply(layers::AveragePooling2D{}, y);
  y = apply(layers::Dropout{.rate = 0.4f, .name = "d1"}, y);
  y = apply(layers::Flatten{}, y);
  y = apply(layers::Dropout{.rate = 0.4f, .name = "d2"}, y);
  y = apply(layers::Dense{.units = 6, .activation = "tanh", .name = "h"}, y);
  const Twin dropped = apply(layers::Dropout{.rate = 0.4f, .name = "d3"}, y);
  check({x}, apply(layers::Dense{.units = 3, .name = "out"}, add({dropped, y})));
}

TEST_F(GradientTest, FlattenReadByOthersThanDense) {
  const Twin x = input("x", {4, 4, 3});
  const Twin c =
      apply(layers::Conv2D{.filters = 8, .kernel_size = {2, 2}, .activation = "tanh", .name = "c"}, x);
  const Twin flat = apply(layers::Flatten{}, c);
  const Twin tanh = apply(layers::Activation{.activation = "tanh"}, flat);
  const Twin sum = add({flat, tanh});
  const Twin d = apply(layers::Dense{.units = 3, .name = "d"}, flat);
  const Twin e = apply(layers::Dense{.units = 3, .name = "e"}, sum);
  const Twin f = apply(layers::Dense{.units = 3, .name = "f"}, apply(layers::Flatten{}, c));
  check({x}, add({d, e, f}));
}

TEST_F(GradientTest, DenseActsOnTheLastAxis) {
  const Twin x = input("x", {4, 3});
  const Twin h = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "h"}, x);
  const Twin s = apply(layers::Dense{.units = 4, .activation = "softmax", .name = "s"}, h);
  check({x}, apply(layers::Dense{.units = 2, .name = "out"}, apply(layers::Flatten{}, s)));
}

TEST_F(GradientTest, SoftmaxBesideItsInput) {
  const Twin x = input("x", {4});
  const Twin h = apply(layers::Dense{.units = 4, .name = "h"}, x);
  const Twin s = apply(layers::Activation{.activation = "softmax"}, h);
  check({x}, add({s, h}), Loss::kMeanSquaredError);
}

}  // namespace
}  // namespace rondo::test
