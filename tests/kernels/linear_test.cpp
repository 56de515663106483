// Convolution and dense against the oracle, on random shapes and in every layout they ask for.
#include <gmock/gmock.h>

#include "runtime/base/error.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

constexpr double kTolerance = 2e-5;

class LinearTest : public KernelTest {
 protected:
  using KernelTest::KernelTest;
  template <class Kernel, class Spec>
  void check(Kernel& kernel, const Spec& spec, const Array& x, const Array& w, const Array& b,
             const std::function<Array(const Array&, const Array&, const Array&)>& forward,
             const std::function<LinearGradients(const Array&)>& backward) {
    SCOPED_TRACE(kernel.implementation());
    const bool bias = spec.use_bias, input_gradient = spec.input_gradient;
    operands.clear();
    const auto* in = operand(kernel.input(), x);
    const auto* weights = operand(kernel.kernel(), w);
    const auto* offset = operand(kernel.bias(), b);
    const auto* out = result(kernel.output());
    const Tensor none;
    kernel.forward(on(kernel), in->tensor(), weights->tensor(), bias ? offset->tensor() : none,
                   out->tensor());
    EXPECT_LT(relative_error(array(out), activation(forward(x, w, bias ? b : Array()), spec.activation)),
              kTolerance);
    EXPECT_LT(padding_mass(out), 1e-3);

    const Array dy = random_array(kernel.output().shape, 99);
    const auto expected = backward(dy);
    const auto* grad = operand(kernel.output(), dy);
    const auto *dx = result(kernel.input()), *dw = result(kernel.kernel()), *db = result(kernel.bias());
    kernel.backward_weights(on(kernel), in->tensor(), grad->tensor(), dw->tensor(),
                            bias ? db->tensor() : none);
    EXPECT_LT(relative_error(array(dw), expected.kernel), kTolerance);
    EXPECT_LT(padding_mass(dw), 1e-3);
    if (bias) {
      EXPECT_LT(relative_error(array(db), expected.bias), kTolerance);
    }
    if (input_gradient) {
      kernel.backward_input(on(kernel), grad->tensor(), weights->tensor(), dx->tensor());
      EXPECT_LT(relative_error(array(dx), expected.x), kTolerance);
      EXPECT_LT(padding_mass(dx), 1e-3);
    }
    check_guards();
  }

  void check_conv(const Conv2DSpec& spec, uint64_t seed) {
    const auto kernel = backend->conv2d(spec);
    SCOPED_TRACE(spec.input.shape.text() + " to " + kernel->output().shape.text());
    const Array x = random_array(spec.input.shape, seed), w = random_array(kernel->kernel().shape, seed + 1),
                b = random_array(kernel->bias().shape, seed + 2);
    const Window window = window_of(spec);
    check(
        *kernel, spec, x, w, b,
        [&](const Array& i, const Array& k, const Array& o) { return conv2d(i, k, o, window); },
        [&](const Array& dy) { return conv2d_gradients(x, w, dy, window); });
  }
  Layout blocked_dense_layout() {
    const auto conv = backend->conv2d({.input = plain({8, 7, 6, 8}), .filters = 16, .kernel_size = {3, 3}});
    return backend->dense({.input = conv->output(), .units = 12})->kernel().layout;
  }
  Layout conv_layout() {
    return backend->conv2d({.input = plain({8, 7, 6, 8}), .filters = 16, .kernel_size = {3, 3}})
        ->kernel()
        .layout;
  }
  void check_dense(const DenseSpec& spec, uint64_t seed) {
    const auto kernel = backend->dense(spec);
    SCOPED_TRACE(spec.input.shape.text() + " to " + kernel->output().shape.text());
    const Array x = random_array(spec.input.shape, seed), w = random_array(kernel->kernel().shape, seed + 1),
                b = random_array(kernel->bias().shape, seed + 2);
    check(*kernel, spec, x, w, b, dense, [&](const Array& dy) { return dense_gradients(x, w, dy); });
  }
};

constexpr Activation kActivations[] = {Activation::kLinear, Activation::kRelu, Activation::kSigmoid,
                                       Activation::kTanh};

TEST_F(LinearTest, ConvolutionOnRandomShapes) {
  std::mt19937 random(11);
  const auto pick = [&](std::initializer_list<int64_t> from) {
    return *(from.begin() + random() % from.size());
  };
  for (int round = 0; round < 40; ++round) {
    Conv2DSpec spec;
    const int64_t channels = pick({1, 3, 6, 8, 16, 17});
    spec.input = plain({pick({1, 2, 3, 5, 9}), pick({5, 7, 8, 11}), pick({5, 6, 9}), channels});
    spec.filters = pick({1, 3, 6, 8, 16, 17, 32});
    spec.kernel_size = {pick({1, 2, 3}), pick({1, 3, 5})};
    spec.strides = {pick({1, 1, 2}), pick({1, 1, 3})};
    spec.dilation = {pick({1, 1, 2}), 1};
    for (auto& padding : spec.padding) padding = pick({0, 0, 1});
    spec.use_bias = pick({0, 1, 1}) == 1;
    spec.activation = kActivations[round % 4];
    check_conv(spec, static_cast<uint64_t>(round) * 10 + 1);
  }
}

TEST_F(LinearTest, ConvolutionInGroupsAndDepthwise) {
  for (const auto& [channels, filters, groups] :
       {std::array<int64_t, 3>{8, 16, 2}, {6, 6, 6}, {6, 12, 6}, {17, 17, 17}, {16, 16, 16}, {6, 9, 3}}) {
    check_conv({.input = plain({3, 9, 7, channels}),
                .filters = filters,
                .kernel_size = {3, 3},
                .padding = {1, 1, 1, 1},
                .groups = groups,
                .activation = Activation::kRelu},
               5);
  }
}

TEST_F(LinearTest, ConvolutionOfTheZoo) {
  check_conv({.input = plain({2, 28, 28, 1}), .filters = 32, .kernel_size = {3, 3}}, 1);
  check_conv({.input = plain({2, 26, 26, 32}), .filters = 64, .kernel_size = {3, 3}}, 2);
  check_conv({.input = plain({2, 32, 32, 3}), .filters = 6, .kernel_size = {5, 5}}, 3);
}

TEST_F(LinearTest, DenseOnRandomShapes) {
  std::mt19937 random(12);
  const auto pick = [&](std::initializer_list<int64_t> from) {
    return *(from.begin() + random() % from.size());
  };
  for (int round = 0; round < 24; ++round) {
    check_dense({.input = plain({pick({1, 2, 3, 8, 9}), pick({1, 3, 8, 17, 64, 100})}),
                 .units = pick({1, 3, 8, 10, 17, 64}),
                 .use_bias = round % 3 != 0,
                 .activation = kActivations[round % 4],
                 .input_gradient = round % 5 != 0},
                static_cast<uint64_t>(round));
  }
}

TEST_F(LinearTest, DenseReadsImagesInAnyLayout) {
  for (const int64_t channels : {1, 6, 8, 17, 64}) {
    check_dense({.input = plain({3, 5, 4, channels}), .units = 10}, 3);
    const auto conv =
        backend->conv2d({.input = plain({3, 7, 6, 8}), .filters = channels, .kernel_size = {3, 3}});
    ASSERT_EQ(conv->output().shape, (Shape{3, 5, 4, channels}));
    check_dense({.input = conv->output(), .units = 10}, 4);
  }
}

TEST_F(LinearTest, ImposedLayoutsOfAnotherBatchGiveEqualResults) {
  for (const int64_t channels : {1, 3, 32}) {
    Conv2DSpec spec{.input = plain({64, 12, 12, channels}), .filters = 24, .kernel_size = {3, 3}};
    const Layout nominal = backend->conv2d(spec)->kernel().layout;
    for (const int64_t batch : {1, 3, 8}) {
      spec.input = plain({batch, 12, 12, channels});
      for (const Layout& layout : {nominal, Layout()}) {
        spec.kernel_layout = layout;
        EXPECT_EQ(backend->conv2d(spec)->kernel().layout, layout);
        check_conv(spec, 4);
      }
      spec.mode = Mode::kInference;
      EXPECT_EQ(backend->conv2d(spec)->kernel().layout, *spec.kernel_layout);
      spec.mode = Mode::kTraining;
      spec.kernel_layout.reset();
    }
  }
  const auto conv = backend->conv2d({.input = plain({8, 7, 6, 8}), .filters = 16, .kernel_size = {3, 3}});
  const auto blocked = backend->dense({.input = conv->output(), .units = 12});
  DenseSpec other{.input = plain({3, 5, 4, 16}), .units = 12, .kernel_layout = blocked->kernel().layout};
  check_dense(other, 6);
  other.input = plain({3, 5 * 4 * 16});
  check_dense(other, 7);
}

TEST_F(LinearTest, DenseImposedLayouts) {
  const DenseSpec first{.input = plain({64, 20}), .units = 12, .input_gradient = false};
  const Layout own = backend->dense(first)->kernel().layout;
  for (const Layout& layout : {own, Layout()}) {
    for (const int64_t rows : {1, 8}) {
      const DenseSpec spec{.input = plain({rows, 20}), .units = 12, .kernel_layout = layout};
      EXPECT_EQ(backend->dense(spec)->kernel().layout, layout);
      check_dense(spec, 8);
    }
  }
  const Layout foreign = on_host() ? blocked_dense_layout() : conv_layout();
  EXPECT_THROW(backend->dense({.input = plain({8, 21}), .units = 12, .kernel_layout = foreign}),
               InvalidArgument);
}

class LinearTwoThreadsTest : public LinearTest {
 protected:
  LinearTwoThreadsTest() : LinearTest(2) {}
};

TEST_F(LinearTwoThreadsTest, ConvolutionAndDense) {
  check_conv({.input = plain({5, 12, 12, 1}), .filters = 32, .kernel_size = {3, 3}}, 1);
  check_conv({.input = plain({5, 12, 12, 32}), .filters = 17, .kernel_size = {3, 3}}, 2);
  check_dense({.input = plain({9, 300}), .units = 70}, 3);
}

TEST_F(LinearTest, BadSpecsAreRefused) {
  EXPECT_THROW(backend->conv2d({.input = plain({0, 8, 8, 1}), .filters = 1}), InvalidArgument);
  EXPECT_THROW(backend->conv2d({.input = plain({8, 8}), .filters = 1}), InvalidArgument);
  EXPECT_THROW(backend->conv2d({.input = plain({1, 8, 8, 1}), .filters = 0}), InvalidArgument);
  EXPECT_THROW(backend->conv2d({.input = plain({1, 8, 8, 3}), .filters = 4, .groups = 2}), InvalidArgument);
  EXPECT_THROW(backend->conv2d({.input = plain({1, 2, 2, 3}), .filters = 4, .kernel_size = {3, 3}}),
               InvalidArgument);
  EXPECT_THROW(backend->conv2d({.input = {{1, 8, 8, 1}, DType::kI32, {}}, .filters = 1}), InvalidArgument);
  EXPECT_THROW(backend->dense({.input = plain({4, 3}), .units = 0}), InvalidArgument);
  EXPECT_THROW(backend->dense({.input = plain({4, 3, 2}), .units = 1}), InvalidArgument);
  EXPECT_THROW(backend->dense({.input = plain({0, 3}), .units = 1}), InvalidArgument);
}

TEST_F(LinearTest, LayoutTextNamesTheOrder) {
  const auto at = [&](int64_t batch) {
    return backend->conv2d({.input = plain({batch, 9, 9, 16}), .filters = 16, .kernel_size = {3, 3}});
  };
  const auto another = make_backend_under_test(1);
  const auto one = at(2), same = another.backend->conv2d(
                              {.input = plain({2, 9, 9, 16}), .filters = 16, .kernel_size = {3, 3}});
  EXPECT_EQ(one->kernel().layout.text(), same->kernel().layout.text());
  EXPECT_EQ(one->kernel().layout, same->kernel().layout);
  EXPECT_EQ(Layout().text(), "canonical");
}

}  // namespace
}  // namespace rondo::test
