// The oracle itself: its gradients against central differences of its own functions, in float64.
#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace rondo::test {
namespace {

constexpr double kTolerance = 1e-6;

TEST(Oracle, ConvolutionGradients) {
  const Window window{
      .size = {3, 2}, .strides = {2, 1}, .dilation = {1, 2}, .padding = {1, 0, 1, 2}, .groups = 2};
  const Array x = random_array({2, 6, 5, 4}, 1), w = random_array({3, 2, 2, 6}, 2), b = random_array({6}, 3);
  const Array dy = random_array(conv2d(x, w, b, window).shape, 4);
  const auto grads = conv2d_gradients(x, w, dy, window);
  const auto along = [&](const Array& i, const Array& k, const Array& o) {
    return inner(conv2d(i, k, o, window), dy);
  };
  EXPECT_LT(relative_error(grads.x, numeric_gradient([&](const Array& v) { return along(v, w, b); }, x)),
            kTolerance);
  EXPECT_LT(relative_error(grads.kernel, numeric_gradient([&](const Array& v) { return along(x, v, b); }, w)),
            kTolerance);
  EXPECT_LT(relative_error(grads.bias, numeric_gradient([&](const Array& v) { return along(x, w, v); }, b)),
            kTolerance);
}

TEST(Oracle, ConvolutionByHand) {
  // 1x1x3x1 image, window of 2: cross-correlation does not flip the kernel.
  Array x(Shape{1, 1, 3, 1}), w(Shape{1, 2, 1, 1});
  x.values = {1, 2, 3};
  w.values = {10, 1};
  EXPECT_EQ(conv2d(x, w, {}, {.size = {1, 2}}).values, (std::vector<double>{12, 23}));
}

TEST(Oracle, DenseGradients) {
  const Array x = random_array({3, 2, 2, 2}, 1), w = random_array({8, 5}, 2), b = random_array({5}, 3);
  const Array dy = random_array({3, 5}, 4);
  const auto grads = dense_gradients(x, w, dy);
  EXPECT_LT(
      relative_error(grads.x, numeric_gradient([&](const Array& v) { return inner(dense(v, w, b), dy); }, x)),
      kTolerance);
  EXPECT_LT(relative_error(grads.kernel,
                           numeric_gradient([&](const Array& v) { return inner(dense(x, v, b), dy); }, w)),
            kTolerance);
  EXPECT_LT(relative_error(grads.bias,
                           numeric_gradient([&](const Array& v) { return inner(dense(x, w, v), dy); }, b)),
            kTolerance);
}

TEST(Oracle, PoolingGradients) {
  const Window window{.size = {3, 2}, .strides = {2, 2}, .padding = {1, 1, 0, 1}};
  const Array x = random_array({2, 5, 5, 3}, 1);
  for (const auto pooling : {Pooling::kMax, Pooling::kAverage}) {
    const Array dy = random_array(pool2d(x, pooling, window).shape, 2);
    const auto numeric =
        numeric_gradient([&](const Array& v) { return inner(pool2d(v, pooling, window), dy); }, x, 1e-7);
    EXPECT_LT(relative_error(pool2d_gradient(x, dy, pooling, window), numeric), kTolerance);
  }
}

TEST(Oracle, ElementwiseAndSoftmaxGradients) {
  const Array x = random_array({3, 7}, 1), dy = random_array({3, 7}, 2);
  for (const auto f : {Activation::kLinear, Activation::kRelu, Activation::kSigmoid, Activation::kTanh}) {
    const auto numeric = numeric_gradient([&](const Array& v) { return inner(activation(v, f), dy); }, x);
    EXPECT_LT(relative_error(activation_gradient(x, dy, f), numeric), kTolerance);
  }
  const auto numeric = numeric_gradient([&](const Array& v) { return inner(softmax(v), dy); }, x);
  EXPECT_LT(relative_error(softmax_gradient(x, dy), numeric), kTolerance);
}

TEST(Oracle, BatchNormGradients) {
  const Array x = random_array({3, 2, 2, 3}, 1), gamma = random_array({3}, 2), beta = random_array({3}, 3),
              dy = random_array({3, 2, 2, 3}, 4);
  const auto along = [&](const Array& i, const Array& g, const Array& b) {
    return inner(batch_norm(i, batch_statistics(i), g, b, 1e-3), dy);
  };
  const auto grads = batch_norm_gradients(x, gamma, dy, 1e-3);
  EXPECT_LT(
      relative_error(grads.x, numeric_gradient([&](const Array& v) { return along(v, gamma, beta); }, x)),
      1e-5);
  EXPECT_LT(
      relative_error(grads.gamma, numeric_gradient([&](const Array& v) { return along(x, v, beta); }, gamma)),
      kTolerance);
  EXPECT_LT(
      relative_error(grads.beta, numeric_gradient([&](const Array& v) { return along(x, gamma, v); }, beta)),
      kTolerance);
}

TEST(Oracle, LossGradients) {
  Array p = random_array({4, 2, 5}, 1);
  for (double& v : p.values) v = 0.1 + 0.4 * (v + 1.0);  // probabilities within the clip range
  Array soft = random_array({4, 2, 5}, 2);
  for (double& v : soft.values) v = v > 0 ? v : 0.0;  // rows need not sum to 1
  Array sparse(Shape{4, 2});
  for (int64_t i = 0; i < 8; ++i) sparse[i] = static_cast<double>(i * 3 % 5);
  for (const auto kind : {Loss::kCategoricalCrossentropy, Loss::kSparseCategoricalCrossentropy,
                          Loss::kBinaryCrossentropy, Loss::kMeanSquaredError}) {
    const Array& y = kind == Loss::kSparseCategoricalCrossentropy ? sparse : soft;
    for (const bool logits : {false, true}) {
      const auto numeric = numeric_gradient([&](const Array& v) { return loss(v, y, kind, logits); }, p);
      EXPECT_LT(relative_error(loss_gradient(p, y, kind, logits), numeric), kTolerance)
          << static_cast<int>(kind);
    }
  }
}

}  // namespace
}  // namespace rondo::test
