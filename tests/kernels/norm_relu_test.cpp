// relu(batch_norm(x) + addend) in one kernel, where the backend has it.
#include <gmock/gmock.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

struct NormReluCase {
  Shape shape;
  bool add = true, scale = true, center = true;
  bool in_place = false;  // over the addend, and over the gradient that comes in
};

class NormReluTest : public KernelTest {
 protected:
  std::unique_ptr<NormReluKernel> make(const NormReluCase& test, Mode mode) {
    return backend->norm_relu({.norm = {.input = plain(test.shape),
                                        .momentum = 0.9f,
                                        .epsilon = 1e-3f,
                                        .scale = test.scale,
                                        .center = test.center,
                                        .mode = mode},
                               .add = test.add});
  }
  static Array relu_of(const Array& normalized, const Array& addend) {
    Array y = normalized;
    for (int64_t i = 0; i < y.size(); ++i) {
      if (addend.size() > 0) y[i] += addend[i];
      if (!(y[i] > 0.0)) y[i] = 0.0;
    }
    return y;
  }
  void run_training(const NormReluCase& test) {
    const auto kernel = make(test, Mode::kTraining);
    const Shape vector{test.shape[test.shape.rank() - 1]};
    const Tensor none;
    const Array x = random_array(test.shape, 1), dy = random_array(test.shape, 5);
    const Array addend = test.add ? random_array(test.shape, 8) : Array();
    const Array gamma = test.scale ? random_array(vector, 2) : Array(),
                beta = test.center ? random_array(vector, 3) : Array();
    const Array old_mean = random_array(vector, 6), old_variance = random_array(vector, 7);
    const auto *mean = operand(plain(vector), old_mean), *variance = operand(plain(vector), old_variance);
    const BatchNormParameters parameters{test.scale ? operand(plain(vector), gamma)->tensor() : none,
                                         test.center ? operand(plain(vector), beta)->tensor() : none,
                                         mean->tensor(), variance->tensor()};
    const auto* in = operand(kernel->desc(), x);
    const auto* added = test.add ? operand(kernel->desc(), addend) : nullptr;
    const auto* out = test.add && test.in_place ? added : result(kernel->desc());
    kernel->forward(on(*kernel), in->tensor(), test.add ? added->tensor() : none, parameters, out->tensor());

    const auto statistics = batch_statistics(x);
    const Array y = relu_of(batch_norm(x, statistics, gamma, beta, 1e-3), addend);
    EXPECT_LT(relative_error(array(out), y), 1e-5);
    const auto count = static_cast<double>(statistics.count);
    const double correction = test.shape.rank() == 4 ? count / (count - 1.0) : 1.0;
    for (int64_t c = 0; c < vector[0]; ++c) {
      const auto at = static_cast<size_t>(c);
      EXPECT_NEAR(array(mean)[c], 0.9 * old_mean[c] + 0.1 * statistics.mean[at], 1e-6);
      EXPECT_NEAR(array(variance)[c], 0.9 * old_variance[c] + 0.1 * correction * statistics.variance[at],
                  1e-6);
    }

    const auto* grad = operand(kernel->desc(), dy);
    const auto* dx = !test.add && test.in_place ? grad : result(kernel->desc());
    const auto* dz = !test.add ? nullptr : test.in_place ? grad : result(kernel->desc());
    const auto *dgamma = result(plain(vector)), *dbeta = result(plain(vector));
    kernel->backward(on(*kernel), in->tensor(), out->tensor(), grad->tensor(), parameters,
                     {.in = dx->tensor(),
                      .addend = test.add ? dz->tensor() : none,
                      .gamma = test.scale ? dgamma->tensor() : none,
                      .beta = test.center ? dbeta->tensor() : none});
    Array masked = dy;
    for (int64_t i = 0; i < masked.size(); ++i) {
      if (!(y[i] > 0.0)) masked[i] = 0.0;
    }
    const auto expected = batch_norm_gradients(x, gamma, masked, 1e-3);
    EXPECT_LT(relative_error(array(dx), expected.x), 2e-5);
    if (test.add) {
      EXPECT_EQ(array(dz).values, masked.values);
    }
    if (test.scale) {
      EXPECT_LT(relative_error(array(dgamma), expected.gamma), 1e-5);
    }
    if (test.center) {
      EXPECT_LT(relative_error(array(dbeta), expected.beta), 1e-5);
    }
    check_guards();
    operands.clear();
  }
};

TEST_F(NormReluTest, InTraining) {
  if (!backend->fuses_norm(DType::kF32)) GTEST_SKIP() << "this backend has other ways";
  for (const Shape& shape : {Shape{7, 5}, Shape{9, 1}, Shape{3, 5, 4, 8}, Shape{2, 3, 3, 17}}) {
    for (const bool add : {true, false}) {
      for (int round = 0; round < 4; ++round) {
        const NormReluCase test{.shape = shape,
                                .add = add,
                                .scale = round != 1 && round != 3,
                                .center = round != 2 && round != 3,
                                .in_place = round == 1};
        SCOPED_TRACE(shape.text() + (add ? " added" : "") + " round " + std::to_string(round));
        run_training(test);
      }
    }
  }
}

TEST_F(NormReluTest, InInference) {
  if (!backend->fuses_norm(DType::kF32)) GTEST_SKIP() << "this backend has other ways";
  for (const bool add : {true, false}) {
    const NormReluCase test{.shape = {2, 3, 3, 17}, .add = add};
    const auto kernel = make(test, Mode::kInference);
    const Shape vector{17};
    const Array x = random_array(test.shape, 1), gamma = random_array(vector, 2),
                beta = random_array(vector, 3), mean = random_array(vector, 4);
    const Array addend = add ? random_array(test.shape, 8) : Array();
    Array variance = random_array(vector, 5);
    for (double& v : variance.values) v = static_cast<double>(static_cast<float>(1.5 + v));
    const BatchNormParameters parameters{
        operand(plain(vector), gamma)->tensor(), operand(plain(vector), beta)->tensor(),
        operand(plain(vector), mean)->tensor(), operand(plain(vector), variance)->tensor()};
    const auto *in = operand(kernel->desc(), x), *out = result(kernel->desc());
    kernel->forward(on(*kernel), in->tensor(), add ? operand(kernel->desc(), addend)->tensor() : Tensor(),
                    parameters, out->tensor());
    const Array y = relu_of(batch_norm(x, {mean.values, variance.values, 1}, gamma, beta, 1e-3), addend);
    EXPECT_LT(relative_error(array(out), y), 1e-5);
    check_guards();
    operands.clear();
  }
}

TEST_F(NormReluTest, IsRefusedWhereItDoesNotFit) {
  if (!backend->fuses_norm(DType::kF32)) {
    EXPECT_THROW(make({.shape = {2, 3}}, Mode::kTraining), Unavailable);
    return;
  }
  EXPECT_THROW(make({.shape = {2, 3, 4}}, Mode::kTraining), InvalidArgument);
  EXPECT_THROW(backend->norm_relu({.norm = {.input = plain({2, 3}), .epsilon = 0.0f}}), InvalidArgument);
}

}  // namespace
}  // namespace rondo::test
