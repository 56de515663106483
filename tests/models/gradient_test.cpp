// Losses, gradients and predictions of small graphs against float64 definitions and central differences.
#include "tests/models/gradient_fixture.h"

namespace rondo::test {
namespace {

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

TEST_F(GradientTest, GlobalPoolingThatKeepsAxes) {
  const Twin x = input("x", {4, 5, 3});
  Twin y = apply(layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .activation = "tanh", .name = "c"}, x);
  y = apply(layers::GlobalAveragePooling2D{.keepdims = true}, y);
  y = apply(layers::Conv2D{.filters = 3, .activation = "tanh", .name = "point"}, y);
  check({x}, apply(layers::Flatten{}, y));
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
