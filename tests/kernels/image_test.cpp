// Pooling, batch normalization and reorders.
#include <gmock/gmock.h>

#include <limits>

#include "runtime/base/error.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class ImageTest : public KernelTest {
 protected:
  // The layout that a convolution would hand on: blocked where oneDNN blocks.
  TensorDesc blocked(const Shape& shape) {
    const Shape in{shape[0], shape[1], shape[2], 8};
    return backend->conv2d({.input = plain(in), .filters = shape[3]})->output();
  }
  std::vector<TensorDesc> layouts(const Shape& shape) { return {plain(shape), blocked(shape)}; }
};

TEST_F(ImageTest, ReorderKeepsEveryElementAndZeroesPadding) {
  for (const int64_t channels : {1, 3, 6, 8, 17}) {
    const Shape shape{2, 5, 4, channels};
    const Array x = random_array(shape, 3);
    const auto* there = operand(blocked(shape), x);
    EXPECT_EQ(relative_error(array(there), x), 0.0);
    EXPECT_LT(padding_mass(there), 1e-4);
    check_guards();
  }
}

TEST_F(ImageTest, KernelsGoIntoTheirLayoutAndBack) {
  for (const int64_t filters : {1, 3, 16}) {
    const auto conv = backend->conv2d(
        {.input = plain({2, 9, 9, 5}), .filters = filters, .kernel_size = {3, 2}, .use_bias = false});
    const Array w = random_array(conv->kernel().shape, 4);
    EXPECT_EQ(relative_error(array(operand(conv->kernel(), w)), w), 0.0);
    check_guards();
  }
}

TEST_F(ImageTest, ReorderRefusesOtherShapes) {
  EXPECT_THROW(backend->reorder(plain({2, 3}), plain({3, 2})), InvalidArgument);
  EXPECT_THROW(backend->reorder(plain({2, 3}), {{2, 3}, DType::kI32, {}}), InvalidArgument);
}

TEST_F(ImageTest, PoolingOnRandomShapes) {
  std::mt19937 random(13);
  const auto pick = [&](std::initializer_list<int64_t> from) {
    return *(from.begin() + random() % from.size());
  };
  for (int round = 0; round < 40; ++round) {
    const Shape shape{pick({1, 2, 3, 9}), pick({4, 5, 7}), pick({4, 6, 9}), pick({1, 3, 6, 8, 17, 32})};
    Pool2DSpec spec{.input = layouts(shape)[round % 2],
                    .pooling = round % 4 < 2 ? Pooling::kMax : Pooling::kAverage,
                    .pool_size = {pick({2, 3}), pick({2, 4})},
                    .strides = {pick({1, 2}), pick({1, 2, 3})}};
    for (auto& padding : spec.padding) padding = pick({0, 0, 1});
    const auto kernel = backend->pool2d(spec);
    SCOPED_TRACE(shape.text() + " " + kernel->implementation());
    EXPECT_THAT(kernel->implementation(), ::testing::Not(::testing::HasSubstr("ref")));
    Array x = random_array(shape, static_cast<uint64_t>(round));
    for (double& v : x.values) v -= 2.0;  // all negative: padding must not win
    const Array expected = pool2d(x, spec.pooling, window_of(spec));
    const auto *in = operand(kernel->input(), x), *out = result(kernel->output());
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    EXPECT_LT(relative_error(array(out), expected), 1e-6);
    const Array dy = random_array(expected.shape, 5);
    const auto *grad = operand(kernel->output(), dy), *dx = result(kernel->input());
    kernel->backward(on(*kernel), grad->tensor(), dx->tensor());
    EXPECT_LT(relative_error(array(dx), pool2d_gradient(x, dy, spec.pooling, window_of(spec))), 1e-6);
    EXPECT_LT(padding_mass(out) + padding_mass(dx), 1e-3);
    check_guards();
    operands.clear();
  }
}

TEST_F(ImageTest, GlobalAveragePoolingIsAWindowAsLargeAsTheImage) {
  for (const auto& desc : layouts({3, 5, 4, 17})) {
    const Pool2DSpec spec{
        .input = desc, .pooling = Pooling::kAverage, .pool_size = {5, 4}, .mode = Mode::kInference};
    const auto kernel = backend->pool2d(spec);
    const Array x = random_array(desc.shape, 1);
    const auto *in = operand(kernel->input(), x), *out = result(kernel->output());
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    EXPECT_EQ(kernel->output().shape, (Shape{3, 1, 1, 17}));
    EXPECT_LT(relative_error(array(out), pool2d(x, spec.pooling, window_of(spec))), 1e-6);
  }
}

TEST_F(ImageTest, BatchNormInTraining) {
  std::vector<TensorDesc> inputs{plain({7, 5}), plain({4, 8}), plain({9, 1})};
  for (const int64_t channels : {1, 3, 6, 8, 17, 32}) {
    for (const auto& desc : layouts({3, 5, 4, channels})) inputs.push_back(desc);
  }
  int round = 0;
  for (const auto& desc : inputs) {
    const BatchNormSpec spec{.input = desc,
                             .momentum = 0.9f,
                             .epsilon = 1e-3f,
                             .scale = round % 4 != 1 && round % 4 != 3,
                             .center = round % 4 != 2 && round % 4 != 3};
    ++round;
    const auto kernel = backend->batch_norm(spec);
    SCOPED_TRACE(desc.shape.text() + " " + kernel->implementation());
    EXPECT_THAT(kernel->implementation(), ::testing::Not(::testing::HasSubstr("ref")));
    const int64_t channels = desc.shape[desc.shape.rank() - 1];
    const Shape vector{channels};
    const Array x = random_array(desc.shape, 1), dy = random_array(desc.shape, 5);
    const Array gamma = spec.scale ? random_array(vector, 2) : Array(),
                beta = spec.center ? random_array(vector, 3) : Array();
    const Array old_mean = random_array(vector, 6), old_variance = random_array(vector, 7);
    const auto *mean = operand(plain(vector), old_mean), *variance = operand(plain(vector), old_variance);
    const Tensor none;
    const BatchNormParameters parameters{spec.scale ? operand(plain(vector), gamma)->tensor() : none,
                                         spec.center ? operand(plain(vector), beta)->tensor() : none,
                                         mean->tensor(), variance->tensor()};
    const auto *in = operand(kernel->input(), x), *out = result(kernel->output());
    kernel->forward(on(*kernel), in->tensor(), parameters, out->tensor());
    const auto statistics = batch_statistics(x);
    EXPECT_LT(relative_error(array(out), batch_norm(x, statistics, gamma, beta, 1e-3)), 1e-5);
    const auto count = static_cast<double>(statistics.count);
    for (int64_t c = 0; c < channels; ++c) {
      const double correction = desc.shape.rank() == 4 ? count / (count - 1.0) : 1.0;
      EXPECT_NEAR(array(mean)[c], 0.9 * old_mean[c] + 0.1 * statistics.mean[static_cast<size_t>(c)], 1e-6);
      EXPECT_NEAR(array(variance)[c],
                  0.9 * old_variance[c] + 0.1 * correction * statistics.variance[static_cast<size_t>(c)],
                  1e-6);
    }
    const auto *grad = operand(kernel->output(), dy), *dx = result(kernel->input());
    const auto *dgamma = result(plain(vector)), *dbeta = result(plain(vector));
    kernel->backward(on(*kernel), in->tensor(), grad->tensor(), parameters, dx->tensor(),
                     spec.scale ? dgamma->tensor() : none, spec.center ? dbeta->tensor() : none);
    const auto expected = batch_norm_gradients(x, gamma, dy, 1e-3);
    EXPECT_LT(relative_error(array(dx), expected.x), 2e-5);
    if (spec.scale) {
      EXPECT_LT(relative_error(array(dgamma), expected.gamma), 1e-5);
    }
    if (spec.center) {
      EXPECT_LT(relative_error(array(dbeta), expected.beta), 1e-5);
    }
    EXPECT_LT(padding_mass(out) + padding_mass(dx), 1e-3);
    check_guards();
    operands.clear();
  }
}

TEST_F(ImageTest, BatchNormInInferenceUsesTheMovingStatistics) {
  for (const auto& desc : {plain({7, 5}), plain({2, 3, 3, 17}), blocked({2, 3, 3, 17})}) {
    const auto kernel = backend->batch_norm({.input = desc, .mode = Mode::kInference});
    const Shape vector{desc.shape[desc.shape.rank() - 1]};
    const Array x = random_array(desc.shape, 1), gamma = random_array(vector, 2),
                beta = random_array(vector, 3), mean = random_array(vector, 4);
    Array variance = random_array(vector, 5);
    for (double& v : variance.values) v = static_cast<double>(static_cast<float>(1.5 + v));
    const BatchNormParameters parameters{
        operand(plain(vector), gamma)->tensor(), operand(plain(vector), beta)->tensor(),
        operand(plain(vector), mean)->tensor(), operand(plain(vector), variance)->tensor()};
    const auto *in = operand(kernel->input(), x), *out = result(kernel->output());
    kernel->forward(on(*kernel), in->tensor(), parameters, out->tensor());
    EXPECT_LT(relative_error(array(out), batch_norm(x, {mean.values, variance.values, 1}, gamma, beta, 1e-3)),
              1e-5);
    check_guards();
    operands.clear();
  }
}

TEST_F(ImageTest, BadSpecsAreRefused) {
  EXPECT_THROW(backend->pool2d({.input = plain({0, 4, 4, 1})}), InvalidArgument);
  EXPECT_THROW(backend->pool2d({.input = plain({4, 4})}), InvalidArgument);
  EXPECT_THROW(backend->pool2d({.input = plain({1, 1, 4, 1})}), InvalidArgument);
  EXPECT_THROW(backend->pool2d({.input = plain({1, 4, 4, 1}), .padding = {2, 0, 0, 0}}), InvalidArgument);
  EXPECT_THROW(backend->batch_norm({.input = plain({2, 3, 4})}), InvalidArgument);
  EXPECT_THROW(backend->batch_norm({.input = plain({2, 3}), .epsilon = 0.0f}), InvalidArgument);
}

}  // namespace
}  // namespace rondo::test
