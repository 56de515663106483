// Kernels in bfloat16 and float16 against the oracle on inputs of that type. They add up in float32 and round
// their result, so an error is a few half units in the last place of the largest result.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/comm/half.h"
#include "runtime/kernels/arrange.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class HalfTest : public KernelTest, public testing::WithParamInterface<DType> {
 protected:
  DType type() const { return GetParam(); }
  // What rounding to the type may cost, relative to the value.
  double unit() const { return type() == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

  uint16_t bits(double value) const {
    const auto x = static_cast<float>(value);
    return type() == DType::kBF16 ? half::bfloat16(x).bits : half::float16(x).bits;
  }
  double value_of(uint16_t of) const {
    if (type() == DType::kBF16) {
      half::bfloat16 x;
      x.bits = of;
      return static_cast<double>(static_cast<float>(x));
    }
    half::float16 x;
    x.bits = of;
    return static_cast<double>(static_cast<float>(x));
  }
  Array rounded(Array values) const {
    for (double& value : values.values) value = value_of(bits(value));
    return values;
  }
  Array random(const Shape& shape, uint64_t seed) const { return rounded(random_array(shape, seed)); }

  TensorDesc narrow(const Shape& shape) const { return {shape, type(), {}}; }
  Guarded* narrow_operand(const Array& values) {
    std::vector<uint16_t> memory;
    for (const double value : values.values) memory.push_back(bits(value));
    return raw(narrow(values.shape), memory.data());
  }
  Guarded* narrow_result(const Shape& shape) {
    Array garbage(shape);
    for (double& value : garbage.values) value = 77.0;
    return narrow_operand(garbage);
  }
  Array narrow_array(const Guarded* from) const {
    Array values(from->tensor().desc.shape);
    const auto memory = from->read<uint16_t>();
    for (size_t i = 0; i < memory.size(); ++i) values.values[i] = value_of(memory[i]);
    return values;
  }
  // A parameter of the kernel's, as a pass gives it: rounded, in the parameter's order.
  Tensor rounded_weights(const TensorDesc& desc, const Array& values) {
    const auto* master = operand(desc, values);
    std::vector<uint16_t> memory;
    for (const float value : master->read<float>()) memory.push_back(bits(static_cast<double>(value)));
    return raw(narrow(desc.shape), memory.data())->tensor();
  }

  template <class Kernel, class Spec>
  void check_linear(Kernel& kernel, const Spec& spec, const Array& x,
                    const std::function<Array(const Array&, const Array&)>& forward,
                    const std::function<LinearGradients(const Array&, const Array&)>& backward,
                    double weight_tolerance) {
    SCOPED_TRACE(spec.input.shape.text() + " " + kernel.implementation());
    EXPECT_EQ(kernel.output().dtype, type());
    EXPECT_EQ(kernel.kernel().dtype, DType::kF32);
    const Array w = random(kernel.kernel().shape, 2), b = random(kernel.bias().shape, 3);
    const Guarded* in = narrow_operand(x);
    const Tensor weights = rounded_weights(kernel.kernel(), w);
    const Tensor bias = rounded_weights(kernel.bias(), b);
    const Guarded* out = narrow_result(kernel.output().shape);
    kernel.forward(on(kernel), in->tensor(), weights, spec.use_bias ? bias : Tensor{}, out->tensor());
    EXPECT_LT(relative_error(narrow_array(out),
                             activation(forward(w, spec.use_bias ? b : Array()), spec.activation)),
              3.0 * unit());

    const Array dy = random(kernel.output().shape, 4);
    const LinearGradients expected = backward(w, dy);
    const Guarded* grad = narrow_operand(dy);
    const Guarded *dw = result(kernel.kernel()), *db = result(kernel.bias());
    for (int round = 0; round < 2; ++round) {
      const std::vector<float> before = dw->read<float>();
      kernel.backward_weights(on(kernel), in->tensor(), grad->tensor(), dw->tensor(),
                              spec.use_bias ? db->tensor() : Tensor{});
      if (round > 0) {
        EXPECT_EQ(dw->read<float>(), before) << "another run, other bits";
      }
    }
    EXPECT_LT(relative_error(array(dw), expected.kernel), weight_tolerance);
    if (spec.use_bias) {
      EXPECT_LT(relative_error(array(db), expected.bias), 1e-5);
    }
    const Guarded* dx = narrow_result(kernel.input().shape);
    kernel.backward_input(on(kernel), grad->tensor(), weights, dx->tensor());
    EXPECT_LT(relative_error(narrow_array(dx), expected.x), 2.0 * unit());
    check_guards();
    operands.clear();
  }

  void check_conv(const Conv2DSpec& spec) {
    const auto kernel = backend->conv2d(spec);
    const Array x = random(spec.input.shape, 1);
    const Window window = window_of(spec);
    check_linear(
        *kernel, spec, x, [&](const Array& w, const Array& b) { return conv2d(x, w, b, window); },
        [&](const Array& w, const Array& dy) { return conv2d_gradients(x, w, dy, window); }, 2.0 * unit());
  }
};

INSTANTIATE_TEST_SUITE_P(Types, HalfTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

TEST_P(HalfTest, Convolution) {
  int round = 0;
  for (const int64_t channels : {1, 3, 8}) {
    for (const auto activation : {Activation::kLinear, Activation::kRelu, Activation::kTanh}) {
      ++round;
      check_conv({.input = narrow({3, 8, 7, channels}),
                  .filters = 6,
                  .kernel_size = {3, 2},
                  .strides = {1, 1 + round % 2},
                  .padding = {1, round % 3, 0, 1},
                  .use_bias = round % 4 != 0,
                  .activation = activation});
    }
  }
  check_conv({.input = narrow({2, 7, 7, 6}), .filters = 6, .kernel_size = {3, 3}, .groups = 6});
  check_conv({.input = narrow({2, 7, 7, 6}), .filters = 4, .kernel_size = {3, 3}, .groups = 2});
  Conv2DSpec imposed{.input = narrow({2, 7, 7, 4}), .filters = 8, .kernel_size = {3, 3}};
  imposed.kernel_layout = Layout();
  check_conv(imposed);
}

TEST_P(HalfTest, Dense) {
  for (const auto activation : {Activation::kLinear, Activation::kRelu, Activation::kSigmoid}) {
    for (const bool bias : {true, false}) {
      const DenseSpec spec{.input = narrow({9, 33}), .units = 10, .use_bias = bias, .activation = activation};
      const auto kernel = backend->dense(spec);
      const Array x = random({9, 33}, 1);
      // Gradients come out of the sum, unrounded.
      check_linear(
          *kernel, spec, x, [&](const Array& w, const Array& b) { return dense(x, w, b); },
          [&](const Array& w, const Array& dy) { return dense_gradients(x, w, dy); }, 1e-5);
    }
  }
}

TEST_P(HalfTest, Pooling) {
  for (const auto pooling : {Pooling::kMax, Pooling::kAverage}) {
    const Pool2DSpec spec{.input = narrow({2, 7, 6, 5}),
                          .pooling = pooling,
                          .pool_size = {3, 2},
                          .strides = {2, 1},
                          .padding = {1, 0, 0, 1}};
    const auto kernel = backend->pool2d(spec);
    const Array x = random(spec.input.shape, 1);
    const auto *in = narrow_operand(x), *out = narrow_result(kernel->output().shape);
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    const Array expected = pool2d(x, pooling, window_of(spec));
    EXPECT_LE(relative_error(narrow_array(out), expected), pooling == Pooling::kMax ? 0.0 : unit());
    const Array dy = random(expected.shape, 2);
    const auto *grad = narrow_operand(dy), *dx = narrow_result(spec.input.shape);
    kernel->backward(on(*kernel), grad->tensor(), dx->tensor());
    EXPECT_LT(relative_error(narrow_array(dx), pool2d_gradient(x, dy, pooling, window_of(spec))),
              1.01 * unit());
    check_guards();
  }
}

// Statistics and the parameters' gradients are float32.
TEST_P(HalfTest, BatchNorm) {
  for (const Shape& shape : {Shape{40, 5}, Shape{3, 5, 4, 6}}) {
    const BatchNormSpec spec{.input = narrow(shape), .momentum = 0.9f};
    const auto kernel = backend->batch_norm(spec);
    const Shape channels{shape[shape.rank() - 1]};
    const Array x = random(shape, 1), gamma = random_array(channels, 2), beta = random_array(channels, 3);
    const auto *in = narrow_operand(x), *out = narrow_result(shape),
               *mean = operand(plain(channels), Array(channels)),
               *variance = operand(plain(channels), Array(channels));
    const BatchNormParameters parameters{operand(plain(channels), gamma)->tensor(),
                                         operand(plain(channels), beta)->tensor(), mean->tensor(),
                                         variance->tensor()};
    kernel->forward(on(*kernel), in->tensor(), parameters, out->tensor());
    const BatchStatistics statistics = batch_statistics(x);
    EXPECT_LT(relative_error(narrow_array(out), batch_norm(x, statistics, gamma, beta, 1e-3)), 1.1 * unit());
    for (int64_t c = 0; c < channels[0]; ++c) {
      EXPECT_NEAR(array(mean)[c], 0.1 * statistics.mean[static_cast<size_t>(c)], 1e-6);
    }
    const Array dy = random(shape, 4);
    const auto *grad = narrow_operand(dy), *dx = narrow_result(shape), *d_gamma = result(plain(channels)),
               *d_beta = result(plain(channels));
    kernel->backward(on(*kernel), in->tensor(), grad->tensor(), parameters, dx->tensor(), d_gamma->tensor(),
                     d_beta->tensor());
    const NormGradients expected = batch_norm_gradients(x, gamma, dy, 1e-3);
    EXPECT_LT(relative_error(narrow_array(dx), expected.x), 1.1 * unit());
    EXPECT_LT(relative_error(array(d_gamma), expected.gamma), 1e-5);
    EXPECT_LT(relative_error(array(d_beta), expected.beta), 1e-5);
    const auto inference =
        backend->batch_norm({.input = narrow(shape), .momentum = 0.9f, .mode = Mode::kInference});
    inference->forward(on(*inference), in->tensor(), parameters, out->tensor());
    BatchStatistics moving = statistics;
    moving.mean = array(mean).values;
    moving.variance = array(variance).values;
    EXPECT_LT(relative_error(narrow_array(out), batch_norm(x, moving, gamma, beta, 1e-3)), 1.1 * unit());
    check_guards();
    operands.clear();
  }
}

TEST_P(HalfTest, ElementwiseKernels) {
  const Shape shape{7, 11};
  const Array x = random(shape, 1), dy = random(shape, 2);
  for (const auto f : {Activation::kRelu, Activation::kSigmoid, Activation::kTanh}) {
    const auto kernel = backend->activation(f, narrow(shape));
    const auto *in = narrow_operand(x), *out = narrow_result(shape);
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    EXPECT_LT(relative_error(narrow_array(out), activation(x, f)), 1.01 * unit());
    const auto *grad = narrow_operand(dy), *dx = narrow_result(shape);
    kernel->backward(on(*kernel), out->tensor(), grad->tensor(), dx->tensor());
    // From the rounded result.
    EXPECT_LT(relative_error(narrow_array(dx), activation_gradient(x, dy, f)), 4.0 * unit());
  }
  const auto add = backend->add(narrow(shape));
  const auto* sum = narrow_result(shape);
  add->run(on(*add), narrow_operand(x)->tensor(), narrow_operand(dy)->tensor(), sum->tensor());
  Array expected(shape);
  for (int64_t i = 0; i < x.size(); ++i) expected[i] = x[i] + dy[i];
  EXPECT_EQ(narrow_array(sum).values, rounded(expected).values);

  const auto concat = backend->concat({.inputs = {narrow({2, 3}), narrow({2, 4})}, .axis = 1});
  const Array a = random({2, 3}, 5), b = random({2, 4}, 6);
  const auto* joined = narrow_result({2, 7});
  concat->join(on(*concat), {narrow_operand(a)->tensor(), narrow_operand(b)->tensor()}, joined->tensor());
  const Array all = narrow_array(joined);
  EXPECT_EQ(all[0], a[0]);
  EXPECT_EQ(all[3], b[0]);
  EXPECT_EQ(all[13], b[7]);
  const auto *first = narrow_result({2, 3}), *second = narrow_result({2, 4});
  concat->split(on(*concat), joined->tensor(), {first->tensor(), second->tensor()});
  EXPECT_EQ(narrow_array(first).values, a.values);
  EXPECT_EQ(narrow_array(second).values, b.values);
  check_guards();
}

TEST_P(HalfTest, PaddingKeepsEveryElement) {
  const Shape shape{2, 3, 4, 5};
  const auto kernel = backend->pad({.input = narrow(shape), .padding = {1, 0, 2, 1}});
  ASSERT_EQ(kernel->output().shape, (Shape{2, 4, 7, 5}));
  const Array x = random(shape, 1);
  const auto *there = narrow_result(kernel->output().shape), *back = narrow_result(shape);
  kernel->pad(on(*kernel), narrow_operand(x)->tensor(), there->tensor());
  double mass = 0.0;
  for (const double value : narrow_array(there).values) mass += std::fabs(value);
  for (const double value : x.values) mass -= std::fabs(value);
  EXPECT_NEAR(mass, 0.0, 1e-9);
  kernel->crop(on(*kernel), there->tensor(), back->tensor());
  EXPECT_EQ(narrow_array(back).values, x.values);
  check_guards();
}

TEST_P(HalfTest, DropoutDropsWhatFloat32Drops) {
  const Shape shape{5, 33};
  const DropoutSpec spec{.desc = narrow(shape), .rate = 0.4f, .stream = 3};
  DropoutSpec wide = spec;
  wide.desc = plain(shape);
  const auto kernel = backend->dropout(spec), other = backend->dropout(wide);
  const Array x = random(shape, 1);
  const auto *out = narrow_result(shape), *expected = result(plain(shape)), *back = narrow_result(shape);
  kernel->forward(on(*kernel), narrow_operand(x)->tensor(), out->tensor());
  other->forward(on(*other), operand(plain(shape), x)->tensor(), expected->tensor());
  EXPECT_EQ(narrow_array(out).values, rounded(array(expected)).values);
  kernel->backward(on(*kernel), narrow_operand(x)->tensor(), back->tensor());
  EXPECT_EQ(narrow_array(back).values, narrow_array(out).values);
  check_guards();
}

TEST_P(HalfTest, ConversionRoundsToNearest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Array x(Shape{8});
  x.values = {1.0 + unit(), 1.0 + 3.0 * unit(), -0.3, 1e-30, 70000.0, 3.4e38, -kInfinity, 0x1p-24};
  const auto narrows = backend->reorder(plain({8}), narrow({8})),
             widens = backend->reorder(narrow({8}), plain({8}));
  const auto *there = narrow_result({8}), *back = result(plain({8}));
  narrows->run(on(*narrows), operand(plain({8}), x)->tensor(), there->tensor());
  EXPECT_EQ(narrow_array(there).values, rounded(x).values);
  EXPECT_EQ(narrow_array(there)[0], 1.0) << "a tie goes to the even neighbour";
  EXPECT_EQ(std::isinf(narrow_array(there)[4]), type() == DType::kF16);
  widens->run(on(*widens), there->tensor(), back->tensor());
  EXPECT_EQ(array(back).values, narrow_array(there).values);
  EXPECT_THROW(backend->reorder(plain({8}), narrow({4})), InvalidArgument);
}

TEST_P(HalfTest, WeightsAreRoundedTogether) {
  const auto kernel = backend->round(type());
  std::vector<Tensor> from, to;
  std::vector<Array> expected;
  std::vector<const Guarded*> results;
  for (int64_t i = 0; i < 35; ++i) {
    const Shape shape{i % 7 == 6 ? 9001 + i : 1 + i * 5};
    const Array x = random_array(shape, static_cast<uint64_t>(i));
    expected.push_back(rounded(x));
    from.push_back(operand(plain(shape), x)->tensor());
    results.push_back(narrow_result(shape));
    to.push_back(results.back()->tensor());
  }
  kernel->run(on(*kernel), from, to);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(narrow_array(results[i]).values, expected[i].values) << i;
  }
  check_guards();
  EXPECT_THROW(backend->round(DType::kF32), InvalidArgument);
}

TEST_P(HalfTest, OtherTypesAreRefused) {
  EXPECT_TRUE(backend->computes_in(type()));
  EXPECT_FALSE(backend->computes_in(DType::kF64));
  EXPECT_THROW(backend->softmax(narrow({2, 3})), InvalidArgument);
  EXPECT_THROW(backend->loss({.prediction = narrow({2, 3})}), InvalidArgument);
  EXPECT_THROW(backend->dense({.input = {{2, 3}, DType::kI32, {}}, .units = 2}), InvalidArgument);
  EXPECT_THROW(backend->add({{2, 3}, DType::kF64, {}}), InvalidArgument);
}

}  // namespace
}  // namespace rondo::test
