// The layers beyond those of gradient_test.cpp: losses, gradients and predictions of small graphs.
#include "models/graph/graph.h"
#include "models/layers/prelu.h"
#include "models/layers/regularization.h"
#include "tests/models/gradient_fixture.h"
#include "tests/models/layer_twins.h"

namespace rondo::test {
namespace {

using LayerGradientTest = GradientTest;

TEST_F(LayerGradientTest, DepthwiseConvolutions) {
  for (const int64_t multiplier : {1, 2}) {
    for (const int64_t channels : {3, 8}) {
      SCOPED_TRACE(testing::Message() << channels << " channels, multiplier " << multiplier);
      const Twin x = input("x", {7, 6, 2});
      Twin y = apply(layers::Conv2D{.filters = channels, .kernel_size = {2, 2}, .name = "c"}, x);
      y = apply(layers::DepthwiseConv2D{.kernel_size = {3, 3},
                                        .strides = {2, 2},
                                        .padding = "same",
                                        .depth_multiplier = multiplier,
                                        .activation = "tanh",
                                        .name = "d1"},
                y);
      y = apply(layers::DepthwiseConv2D{.kernel_size = {2, 1}, .use_bias = false, .name = "d2"}, y);
      check({x}, apply(layers::Flatten{}, y));
    }
  }
}

TEST_F(LayerGradientTest, SeparableConvolutionsAndTheirDilation) {
  const Twin x = input("x", {8, 7, 3});
  Twin y = apply(layers::SeparableConv2D{.filters = 8,
                                         .kernel_size = {3, 3},
                                         .padding = "same",
                                         .depth_multiplier = 2,
                                         .activation = "elu",
                                         .name = "s1"},
                 x);
  y = apply(
      layers::SeparableConv2D{
          .filters = 5, .kernel_size = {3, 2}, .dilation_rate = {2, 2}, .use_bias = false, .name = "s2"},
      y);
  check({x}, apply(layers::GlobalMaxPooling2D{}, y));
}

TEST_F(LayerGradientTest, PaddingBeforeAndBehind) {
  const Twin x = input("x", {6, 5, 3});
  Twin y = apply(layers::ZeroPadding2D{.padding = {{{2, 1}, {0, 3}}}}, x);
  y = apply(
      layers::Conv2D{
          .filters = 8, .kernel_size = {3, 3}, .strides = {2, 2}, .activation = "tanh", .name = "c1"},
      y);
  y = apply(layers::ZeroPadding2D{}, y);
  y = apply(layers::MaxPooling2D{.pool_size = {3, 3}, .strides = {2, 2}}, y);
  check({x}, apply(layers::Flatten{}, y));
}

TEST_F(LayerGradientTest, EveryNamedActivation) {
  for (const char* f : {"elu", "selu", "softplus", "softsign", "hard_sigmoid", "exponential", "swish", "gelu",
                        "relu6", "relu"}) {
    SCOPED_TRACE(f);
    const Twin x = input("x", {4, 4, 3});
    // Behind a kernel that does not fuse it, and as a layer whose input others read too.
    Twin y = apply(layers::Conv2D{.filters = 6, .kernel_size = {2, 2}, .activation = f, .name = "c"}, x);
    const Twin z = apply(layers::Activation{.activation = f}, y);
    y = apply(layers::Activation{.activation = "tanh"}, add({y, z}));  // or exponentials of exponentials
    y = apply(layers::Flatten{}, y);
    y = apply(layers::Dense{.units = 4, .activation = f, .name = "d"}, y);
    check({x}, apply(layers::Dense{.units = 2, .name = "out"}, y));
  }
}

TEST_F(LayerGradientTest, ActivationsWithParameters) {
  const Twin x = input("x", {5});
  Twin y = apply(layers::Dense{.units = 8, .name = "a"}, x);
  y = apply(layers::LeakyReLU{}, y);
  y = apply(layers::ELU{.alpha = 0.4f}, apply(layers::Dense{.units = 8, .name = "b"}, y));
  y = apply(layers::ReLU{.max_value = 0.8f, .negative_slope = 0.3f, .threshold = 0.1f},
            apply(layers::Dense{.units = 8, .name = "c"}, y));
  y = apply(layers::ReLU{}, apply(layers::Dense{.units = 8, .name = "d"}, y));
  y = apply(layers::Softmax{}, apply(layers::Dense{.units = 4, .name = "e"}, y));
  check({x}, y, Loss::kCategoricalCrossentropy);
}

TEST_F(LayerGradientTest, JoiningTensors) {
  const Twin x = input("x", {5, 5, 2});
  std::vector<Twin> parts;
  for (const char* name : {"a", "b", "c"}) {
    parts.push_back(
        apply(layers::Conv2D{.filters = 6, .kernel_size = {2, 2}, .activation = "tanh", .name = name}, x));
  }
  const auto pick = [&](size_t i, size_t j) { return std::vector<Twin>{parts[i], parts[j]}; };
  Twin y = joined(layers::Multiply{}, parts, [](double a, double b) { return a * b; });
  y = add({y, joined(
                  layers::Average{}, parts, [](double a, double b) { return a + b; }, 1.0 / 3.0)});
  y = add({y, joined(layers::Maximum{}, parts, [](double a, double b) { return std::max(a, b); })});
  y = add({y, joined(layers::Minimum{}, pick(2, 0), [](double a, double b) { return std::min(a, b); })});
  y = add({y, joined(layers::Subtract{}, pick(1, 2), [](double a, double b) { return a - b; })});
  const std::vector<Twin> twice{y, y};
  y = joined(layers::Multiply{}, twice, [](double a, double b) { return a * b; });
  check({x}, apply(layers::Dense{.units = 2, .name = "out"}, apply(layers::Flatten{}, y)));
}

TEST_F(LayerGradientTest, OtherShapesAndOrders) {
  const Twin x = input("x", {4, 3, 2});
  Twin y = apply(layers::Conv2D{.filters = 8, .kernel_size = {2, 2}, .activation = "tanh", .name = "c"}, x);
  y = apply(layers::Permute{.dims = {3, 1, 2}}, y);
  y = apply(layers::Reshape{.target_shape = {4, -1}}, y);
  y = apply(layers::Dense{.units = 3, .activation = "tanh", .name = "d"}, y);
  y = apply(layers::Permute{.dims = {2, 1}}, y);
  y = apply(layers::Reshape{.target_shape = {-1}}, y);
  check({x}, apply(layers::Dense{.units = 2, .name = "out"}, y));
}

TEST_F(LayerGradientTest, PenaltiesCountOnceForSharedWeights) {
  const Twin x = input("x", {4});
  const layers::Dense square{.units = 4,
                             .activation = "tanh",
                             .kernel_regularizer = {.l1 = 0.02, .l2 = 0.05},
                             .bias_regularizer = {.l2 = 0.1},
                             .name = "square"};
  const Twin y = apply(square, apply(square, x));
  check({x}, apply(layers::Dense{.units = 2, .kernel_regularizer = {.l1 = 0.03}, .name = "out"}, y));
}

// Added to the sum of the rows' losses.
double activity(const Array& y, const Regularizer& penalty) {
  double sum = 0.0;
  for (const double value : y.values) sum += penalty.l1 * std::abs(value) + penalty.l2 * value * value;
  return sum;
}

TEST_F(LayerGradientTest, PenaltiesOnResults) {
  const Regularizer first{.l1 = 0.1, .l2 = 0.2}, second{.l2 = 0.3};
  const Twin x = input("x", {6, 6, 2});
  const Twin a = apply(layers::Conv2D{.filters = 8,
                                      .kernel_size = {2, 2},
                                      .activation = "tanh",
                                      .activity_regularizer = first,
                                      .name = "c"},
                       x);
  // An activation behind a penalized layer is not part of it.
  const Twin b = apply(layers::Activation{.activation = "sigmoid", .name = "s"}, a);
  const Twin c = apply(layers::Dense{.units = 3, .activity_regularizer = second, .name = "d"},
                       apply(layers::Flatten{}, b));
  extra_loss = [a, c, first, second](Evaluation& e) {
    return activity(a.value(e), first) + activity(c.value(e), second);
  };
  check({x}, c);
}

TEST_F(LayerGradientTest, PenaltiesOnWhatPasses) {
  const Twin x = input("x", {5});
  const Twin a = apply(layers::Dense{.units = 4, .activation = "tanh", .name = "d"}, x);
  const layers::ActivityRegularization penalty{.l1 = 0.2, .l2 = 0.1, .name = "p"};
  const Twin b = twin(penalty(a.place), [a](Evaluation& e) { return a.value(e); });
  extra_loss = [a](Evaluation& e) { return activity(a.value(e), {.l1 = 0.2, .l2 = 0.1}); };
  check({x}, apply(layers::Dense{.units = 2, .name = "out"}, b));
}

TEST_F(LayerGradientTest, PenaltiesOnNormalization) {
  const Twin x = input("x", {4, 4, 3});
  const layers::BatchNormalization norm{
      .beta_regularizer = {.l1 = 0.2}, .gamma_regularizer = {.l2 = 0.3}, .name = "n"};
  check({x}, apply(layers::Dense{.units = 2, .name = "out"}, apply(layers::Flatten{}, apply(norm, x))));
}

TEST_F(LayerGradientTest, PreluWithSharedAxes) {
  const Twin x = input("x", {4, 3, 5});
  Twin y = x;
  for (const std::vector<int64_t>& shared : {std::vector<int64_t>{}, {1, 2}, {3}}) {
    const std::string name = "p" + std::to_string(shared.size());
    const layers::PReLU layer{.alpha_regularizer = {.l2 = 0.1}, .shared_axes = shared, .name = name};
    y = twin(layer(y.place), [y, name](Evaluation& e) {
      Array out = y.value(e);
      const Array& alpha = e.weights.at(name + "/alpha");
      const Shape& s = alpha.shape;
      for (int64_t i = 0; i < out.size(); ++i) {
        const int64_t c = i % 5, w = i / 5 % 3, h = i / 15 % 4;
        const int64_t at = ((s[0] > 1 ? h : 0) * s[1] + (s[1] > 1 ? w : 0)) * s[2] + (s[2] > 1 ? c : 0);
        if (out[i] <= 0.0) out[i] *= alpha[at];
      }
      return out;
    });
    y = apply(layers::Dense{.units = 5, .name = name + "d"}, y);
  }
  check({x}, apply(layers::Flatten{}, y));
}

// (4, 1, 5) and (1, 3, 5) to (4, 3, 5), and a vector repeated in time.
TEST_F(LayerGradientTest, JoinsRepeatExtentsOfOne) {
  const Twin x = input("x", {4, 1, 5}), y = input("y", {1, 3, 5}), v = input("v", {5});
  const Twin a = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "a"}, x);
  const Twin b = apply(layers::Dense{.units = 5, .activation = "tanh", .name = "b"}, y);
  const auto joined = [a, b](SymbolicTensor place, bool product) {
    return twin(std::move(place), [a, b, product](Evaluation& e) {
      const Array left = a.value(e), right = b.value(e);
      Array out({kRows, 4, 3, 5});
      for (int64_t i = 0; i < out.size(); ++i) {
        const int64_t c = i % 5, w = i / 5 % 3, h = i / 15 % 4, n = i / 60;
        const double p = left[(n * 4 + h) * 5 + c], q = right[(n * 3 + w) * 5 + c];
        out[i] = product ? p * q : p + q;
      }
      return out;
    });
  };
  const Twin sum = joined(layers::Add{.name = "add"}({a.place, b.place}), false);
  const Twin product = joined(layers::Multiply{.name = "mul"}({a.place, b.place}), true);
  const Twin c = apply(layers::Dense{.units = 4, .activation = "tanh", .name = "c"}, v);
  const layers::RepeatVector repeat{.n = 15, .name = "repeat"};
  const Twin repeated = twin(repeat(c.place), [c](Evaluation& e) {
    const Array in = c.value(e);
    Array out({kRows, 15, 4});
    for (int64_t i = 0; i < out.size(); ++i) out[i] = in[i / 60 * 4 + i % 4];
    return out;
  });
  const Twin flat = apply(layers::Flatten{}, repeated);
  check({x, y, v}, add({apply(layers::Flatten{}, sum), apply(layers::Flatten{}, product), flat}));
}

TEST_F(LayerGradientTest, FrozenLayersPassGradientsOn) {
  const Twin x = input("x", {6, 6, 3});
  Twin y = apply(layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .activation = "tanh", .name = "c1"}, x);
  y = apply(layers::Conv2D{.filters = 4,
                           .kernel_size = {2, 2},
                           .activation = "tanh",
                           .kernel_regularizer = {.l2 = 0.1},
                           .trainable = false,
                           .name = "frozen"},
            y);
  y = apply(
      layers::SeparableConv2D{.filters = 4, .kernel_size = {2, 2}, .trainable = false, .name = "separable"},
      y);
  check({x}, apply(layers::Flatten{}, y));
}

// Frozen, it is a function of its input alone: the predictions of the graph are compared too.
TEST_F(LayerGradientTest, FrozenBatchNormalizationUsesMovingStatistics) {
  for (const bool scale : {true, false}) {
    const Twin x = input("x", {5, 5, 3});
    const Twin y =
        apply(layers::Conv2D{.filters = 8, .kernel_size = {2, 2}, .activation = "tanh", .name = "c"}, x);
    const layers::BatchNormalization frozen{
        .epsilon = 0.01f, .scale = scale, .trainable = false, .name = "bn"};
    const Twin z = twin(frozen(y.place), [y, scale](Evaluation& e) {
      const BatchStatistics moving{e.weights.at("bn/moving_mean").values,
                                   e.weights.at("bn/moving_variance").values, 1};
      return batch_norm(y.value(e), moving, scale ? e.weights.at("bn/gamma") : Array{},
                        e.weights.at("bn/beta"), 0.01);
    });
    check({x}, apply(layers::Dense{.units = 2, .name = "out"}, apply(layers::Flatten{}, z)));
  }
}

TEST_F(LayerGradientTest, NothingIsTrainedBehindOnlyFrozenLayers) {
  const auto in = layers::Input({.shape = {4}});
  const auto out = layers::Dense{.units = 2, .trainable = false, .name = "d"}(in);
  const Graph graph({in}, {out}, 1);
  EXPECT_EQ(graph.count_params(true), 0);
  EXPECT_EQ(graph.count_params(), 10);
}

}  // namespace
}  // namespace rondo::test
