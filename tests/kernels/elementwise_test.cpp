// Activations, softmax, add, concat, losses, metrics, updates.
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class ElementwiseTest : public KernelTest {
 protected:
  TensorDesc blocked(const Shape& shape) {
    return backend->conv2d({.input = plain({shape[0], shape[1], shape[2], 8}), .filters = shape[3]})
        ->output();
  }
};

TEST_F(ElementwiseTest, ActivationsInEveryLayout) {
  for (const auto f : {Activation::kLinear, Activation::kRelu, Activation::kSigmoid, Activation::kTanh}) {
    for (const auto& desc :
         {plain({5, 7}), plain({1, 1}), plain({2, 3, 5, 6}), blocked({2, 3, 5, 6}), blocked({2, 3, 5, 16})}) {
      SCOPED_TRACE(desc.shape.text());
      const auto kernel = backend->activation(f, desc);
      Array x = random_array(desc.shape, 1);
      for (double& v : x.values) v = static_cast<double>(static_cast<float>(v * 5.0));
      const Array dy = random_array(desc.shape, 2);
      const auto *in = operand(kernel->desc(), x), *out = result(kernel->desc());
      kernel->forward(on(*kernel), in->tensor(), out->tensor());
      EXPECT_LT(relative_error(array(out), activation(x, f)), 3e-7);
      EXPECT_LT(padding_mass(out), 1e-4);
      const auto *grad = operand(kernel->desc(), dy), *dx = result(kernel->desc());
      kernel->backward(on(*kernel), out->tensor(), grad->tensor(), dx->tensor());
      EXPECT_LT(relative_error(array(dx), activation_gradient(x, dy, f), 0.1), 1e-6);
      EXPECT_LT(padding_mass(dx), 1e-4);
      const Array alone = array(out);
      kernel->forward(on(*kernel), in->tensor(), in->tensor());  // in place
      EXPECT_EQ(array(in).values, alone.values);
      check_guards();
      operands.clear();
    }
  }
}

// Relative error of each value over the whole range of floats, and the special values.
TEST_F(ElementwiseTest, SigmoidAndTanhAreAccurateEverywhere) {
  constexpr int64_t kCount = 200000;
  const auto sigmoid = backend->activation(Activation::kSigmoid, plain({kCount}));
  const auto tanh = backend->activation(Activation::kTanh, plain({kCount}));
  Array x(Shape{kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    const double u = 2.0 * static_cast<double>(i) / kCount - 1.0;
    x[i] = static_cast<double>(static_cast<float>(i % 2 == 0 ? u * 87.0 : std::pow(10.0, u * 8.0 - 7.0)));
  }
  const auto *in = operand(plain({kCount}), x), *s = result(plain({kCount})), *t = result(plain({kCount}));
  sigmoid->forward(on(*sigmoid), in->tensor(), s->tensor());
  tanh->forward(on(*tanh), in->tensor(), t->tensor());
  double worst_sigmoid = 0.0, worst_tanh = 0.0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double exact_s = 1.0 / (1.0 + std::exp(-x[i])), exact_t = std::tanh(x[i]);
    worst_sigmoid = std::max(worst_sigmoid, std::fabs(s->tensor().as<float>()[i] - exact_s) / exact_s);
    if (x[i] != 0.0) worst_tanh = std::max(worst_tanh, std::fabs(t->tensor().as<float>()[i] / exact_t - 1.0));
  }
  EXPECT_LT(worst_sigmoid, 2e-7);
  EXPECT_LT(worst_tanh, 2e-7);

  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const auto small = backend->activation(Activation::kTanh, plain({6}));
  const auto logistic = backend->activation(Activation::kSigmoid, plain({6}));
  float values[6] = {infinity, -infinity, 0.0f, nan, 1000.0f, -1000.0f}, out[6];
  small->forward(on(*small), {plain({6}), values}, {plain({6}), out});
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -1.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_TRUE(std::isnan(out[3]));
  logistic->forward(on(*logistic), {plain({6}), values}, {plain({6}), out});
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 0.5f);
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[4], 1.0f);
  EXPECT_EQ(out[5], 0.0f);
}

TEST_F(ElementwiseTest, Softmax) {
  for (const auto& shape : {Shape{1, 1}, Shape{3, 10}, Shape{5, 17}, Shape{2, 3, 1000}}) {
    const auto kernel = backend->softmax(plain(shape));
    Array x = random_array(shape, 1);
    for (double& v : x.values) v = static_cast<double>(static_cast<float>(v * 30.0 + 500.0));
    const Array dy = random_array(shape, 2);
    const auto *in = operand(plain(shape), x), *out = result(plain(shape));
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    EXPECT_LT(relative_error(array(out), softmax(x)), 1e-6);
    const auto *grad = operand(plain(shape), dy), *dx = result(plain(shape));
    kernel->backward(on(*kernel), out->tensor(), grad->tensor(), dx->tensor());
    EXPECT_LT(relative_error(array(dx), softmax_gradient(x, dy)), 1e-6);
    check_guards();
    operands.clear();
  }
}

TEST_F(ElementwiseTest, AddAlsoInPlace) {
  for (const auto& desc : {plain({3, 7}), blocked({2, 3, 5, 6})}) {
    const auto kernel = backend->add(desc);
    const Array a = random_array(desc.shape, 1), b = random_array(desc.shape, 2);
    Array sum = a;
    for (int64_t i = 0; i < a.size(); ++i) {
      sum[i] = static_cast<double>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    }
    const auto *x = operand(kernel->desc(), a), *y = operand(kernel->desc(), b);
    kernel->run(on(*kernel), x->tensor(), y->tensor(), x->tensor());
    EXPECT_EQ(array(x).values, sum.values);
    check_guards();
  }
}

TEST_F(ElementwiseTest, ConcatJoinsAndSplits) {
  for (const int axis : {-1, 1, 0}) {
    std::vector<TensorDesc> inputs;
    for (const int64_t extent : {3, 1, 5}) {
      inputs.push_back(plain(axis == -1  ? Shape{2, 3, extent}
                             : axis == 1 ? Shape{2, extent, 3}
                                         : Shape{extent, 2, 3}));
    }
    const auto kernel = backend->concat({.inputs = inputs, .axis = axis});
    const int64_t total = axis == 0   ? kernel->output().shape[0]
                          : axis == 1 ? kernel->output().shape[1]
                                      : kernel->output().shape[2];
    EXPECT_EQ(total, 9);
    std::vector<Array> arrays;
    std::vector<Tensor> parts, back;
    for (size_t i = 0; i < inputs.size(); ++i) {
      arrays.push_back(random_array(inputs[i].shape, i));
      parts.push_back(operand(inputs[i], arrays[i])->tensor());
      back.push_back(result(inputs[i])->tensor());
    }
    const auto* whole = result(kernel->output());
    kernel->join(on(*kernel), parts, whole->tensor());
    const auto& shape = kernel->output().shape;
    // The element (1, ..) of the second part stands behind the first part.
    if (axis == -1) {
      EXPECT_EQ(array(whole)[0 * shape[2] + 3], arrays[1][0]);
    }
    if (axis == 1) {
      EXPECT_EQ(array(whole)[3 * shape[2]], arrays[1][0]);
    }
    if (axis == 0) {
      EXPECT_EQ(array(whole)[3 * 6], arrays[1][0]);
    }
    kernel->split(on(*kernel), whole->tensor(), back);
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int64_t k = 0; k < arrays[i].size(); ++k) {
        EXPECT_EQ(static_cast<double>(back[i].as<float>()[k]),
                  static_cast<double>(static_cast<float>(arrays[i][k])));
      }
    }
    check_guards();
  }
  EXPECT_THROW(backend->concat({.inputs = {plain({2, 3}), plain({3, 3})}, .axis = 1}), InvalidArgument);
  EXPECT_THROW(backend->concat({.inputs = {plain({2, 3})}, .axis = 2}), InvalidArgument);
  EXPECT_THROW(backend->concat({.inputs = {}}), InvalidArgument);
}

class LossTest : public ElementwiseTest {
 protected:
  void check(Loss kind, bool logits, const Array& x, const Array& y) {
    const auto kernel = backend->loss({.loss = kind, .prediction = plain(x.shape), .from_logits = logits});
    SCOPED_TRACE(x.shape.text() + " loss " + std::to_string(static_cast<int>(kind)) +
                 (logits ? " logits" : ""));
    std::vector<int32_t> classes;
    for (const double v : y.values) classes.push_back(static_cast<int32_t>(v));
    const bool sparse = kind == Loss::kSparseCategoricalCrossentropy;
    EXPECT_EQ(kernel->label().shape, y.shape);
    EXPECT_EQ(kernel->label().dtype, sparse ? DType::kI32 : DType::kF32);
    const Tensor label =
        sparse ? Tensor{kernel->label(), classes.data()} : operand(plain(y.shape), y)->tensor();
    const auto *in = operand(plain(x.shape), x), *grad = result(plain(x.shape));
    double with = 0.0, without = 0.0;
    kernel->run(on(*kernel), in->tensor(), label, &with, grad->tensor());
    kernel->run(on(*kernel), in->tensor(), label, &without, Tensor());
    const double exact = loss(x, y, kind, logits);
    EXPECT_NEAR(with, exact, 2e-6 * std::max(1.0, std::fabs(exact)));
    EXPECT_NEAR(without, with, 1e-9 * std::max(1.0, std::fabs(exact)));
    Array expected = loss_gradient(x, y, kind, logits);
    for (double& v : expected.values) v *= static_cast<double>(state.inverse_batch);
    EXPECT_LT(relative_error(array(grad), expected), 2e-6);
    check_guards();
    operands.clear();
  }
};

TEST_F(LossTest, AgainstTheOracle) {
  for (const auto& shape : {Shape{1, 2}, Shape{4, 10}, Shape{3, 300}, Shape{2, 3, 5}}) {
    Array logits = random_array(shape, 1), soft = random_array(shape, 2), hard(shape);
    Array probabilities = logits;
    for (double& v : logits.values) v = static_cast<double>(static_cast<float>(v * 6.0));
    for (double& v : probabilities.values) v = static_cast<double>(static_cast<float>(v * 0.5 + 0.5));
    probabilities[0] = 0.0;  // beyond the clip range at both ends
    probabilities[probabilities.size() - 1] = 1.0;
    for (double& v : soft.values) v = v > 0.0 ? v : 0.0;
    const int64_t classes = shape[shape.rank() - 1];
    const auto extents = shape.extents();
    Array sparse(Shape(extents.first(extents.size() - 1)));
    for (int64_t i = 0; i < sparse.size(); ++i) sparse[i] = static_cast<double>((i * 7 + 1) % classes);
    for (const bool from_logits : {true, false}) {
      const Array& x = from_logits ? logits : probabilities;
      check(Loss::kSparseCategoricalCrossentropy, from_logits, x, sparse);
      check(Loss::kCategoricalCrossentropy, from_logits, x, soft);
      check(Loss::kBinaryCrossentropy, from_logits, x, soft);
      check(Loss::kMeanSquaredError, from_logits, x, soft);
    }
  }
}

TEST_F(LossTest, HugeLogitsStayFinite) {
  Array x(Shape{1, 3}), y(Shape{1});
  x.values = {1e4, -1e4, 0.0};
  y.values = {1.0};
  check(Loss::kSparseCategoricalCrossentropy, true, x, y);
}

TEST_F(LossTest, ALabelOutsideTheClassesIsNamed) {
  const auto kernel = backend->loss({.prediction = plain({2, 3}), .from_logits = true});
  float x[6] = {};
  for (const int32_t bad : {3, -1}) {
    int32_t y[2] = {0, bad};
    double sum = 0.0;
    try {
      kernel->run(on(*kernel), {plain({2, 3}), x}, {kernel->label(), y}, &sum, Tensor());
      FAIL() << "accepted label " << bad;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("row 1"), std::string::npos) << error.what();
    }
  }
}

TEST_F(LossTest, NanReachesTheLoss) {
  const auto kernel = backend->loss({.prediction = plain({1, 3}), .from_logits = true});
  float x[3] = {0.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f};
  int32_t y[1] = {0};
  double sum = 0.0;
  kernel->run(on(*kernel), {plain({1, 3}), x}, {kernel->label(), y}, &sum, Tensor());
  EXPECT_TRUE(std::isnan(sum));
}

TEST_F(LossTest, Metrics) {
  for (const auto& shape : {Shape{5, 4}, Shape{3, 2, 7}, Shape{4, 1}}) {
    Array x = random_array(shape, 1), y(shape);
    const Array draw = random_array(shape, 2);
    for (int64_t i = 0; i < y.size(); ++i) y[i] = draw[i] > 0.0 ? 1.0 : 0.0;
    for (int64_t i = 0; i < x.size(); ++i) x[i] = std::round(x[i] * 4.0) / 4.0;  // ties
    const int64_t classes = shape[shape.rank() - 1];
    std::vector<int32_t> sparse(static_cast<size_t>(x.size() / classes));
    Array label(Shape{x.size() / classes});
    for (size_t i = 0; i < sparse.size(); ++i) {
      sparse[i] = static_cast<int32_t>(static_cast<int64_t>(i) % classes);
      label[static_cast<int64_t>(i)] = sparse[i];
    }
    const auto *in = operand(plain(shape), x), *target = operand(plain(shape), y);
    for (const auto kind : {Metric::kCategoricalAccuracy, Metric::kSparseCategoricalAccuracy,
                            Metric::kBinaryAccuracy, Metric::kMeanSquaredError, Metric::kMeanAbsoluteError}) {
      for (const bool logits : {false, true}) {
        const bool is_sparse = kind == Metric::kSparseCategoricalAccuracy;
        const auto kernel =
            backend->metric({.metric = kind, .prediction = plain(shape), .from_logits = logits});
        double sum = -1.0;
        kernel->run(on(*kernel), in->tensor(),
                    is_sparse ? Tensor{{label.shape, DType::kI32, {}}, sparse.data()} : target->tensor(),
                    &sum);
        EXPECT_NEAR(sum, metric(x, is_sparse ? label : y, kind, logits), 1e-6);
      }
    }
  }
}

class UpdateTest : public ElementwiseTest {
 protected:
  std::vector<float> step(const UpdateSpec& spec, std::vector<float> gradients = {0.1f, -0.2f, 0.3f}) {
    // Golden values: one weight, three gradients one after another.
    const auto kernel = backend->update(spec);
    float w = 1.0f, first = 0.0f, second = 0.0f;
    std::vector<float> after;
    for (size_t t = 0; t < gradients.size(); ++t) {
      state.update = static_cast<int64_t>(t) + 1;
      kernel->run(on(*kernel), {&w, &gradients[t], {&first, &second}, 1});
      after.push_back(w);
    }
    return after;
  }
  static void expect(const std::vector<float>& got, const std::vector<double>& golden) {
    ASSERT_EQ(got.size(), golden.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], golden[i], 2e-7) << "step " << i;
  }
};

TEST_F(UpdateTest, GoldenValues) {
  state.learning_rate = 0.01f;
  expect(step({SgdUpdate{}}), {.999, 1.001, .998});
  expect(step({SgdUpdate{.momentum = 0.9f}}), {.999, 1.0001, .99809});
  expect(step({SgdUpdate{.momentum = 0.9f, .nesterov = true}}), {.9981, 1.00109, .996281});
  state.learning_rate = 0.001f;
  expect(step({RmsPropUpdate{}}), {.996837732, .999694871, .997104235});
  expect(step({AdamUpdate{}}), {.999000032, .999366130, .999022892});
}

TEST_F(UpdateTest, GradientsAreScaledThenClipped) {
  state.learning_rate = 1.0f;
  state.gradient_scale = 0.5f;
  expect(step({SgdUpdate{}, 0.1f}, {0.1f, -0.1f, 10.0f, -10.0f}), {.95, 1.0, .9, 1.0});
  state.gradient_scale = 1.0f;
  expect(step({SgdUpdate{}}, {10.0f}), {-9.0});
  EXPECT_TRUE(std::isnan(step({SgdUpdate{}, 0.1f}, {std::numeric_limits<float>::quiet_NaN()})[0]));
  EXPECT_THROW(backend->update({SgdUpdate{}, -1.0f}), InvalidArgument);
}

TEST_F(UpdateTest, LongSpansMatchOneByOne) {
  constexpr int64_t kCount = 70001;
  const Shape shape{kCount};
  for (const UpdateSpec& spec : {UpdateSpec{SgdUpdate{}}, UpdateSpec{SgdUpdate{.momentum = 0.9f}},
                                 UpdateSpec{RmsPropUpdate{}}, UpdateSpec{AdamUpdate{}}}) {
    const auto kernel = backend->update(spec);
    const auto *w = operand(plain(shape), random_array(shape, 1)),
               *g = operand(plain(shape), random_array(shape, 2)), *m = operand(plain(shape), Array(shape)),
               *v = operand(plain(shape), Array(shape));
    const auto* alone = operand(plain(shape), random_array(shape, 1));
    kernel->run(on(*kernel), {w->tensor().as<float>(),
                              g->tensor().as<float>(),
                              {m->tensor().as<float>(), v->tensor().as<float>()},
                              kCount});
    for (int64_t i = 0; i < kCount; i += 777) {
      float slots[2] = {0.0f, 0.0f};
      kernel->run(on(*kernel),
                  {alone->tensor().as<float>() + i, g->tensor().as<float>() + i, {&slots[0], &slots[1]}, 1});
      EXPECT_EQ(w->tensor().as<float>()[i], alone->tensor().as<float>()[i]);
    }
    check_guards();
    operands.clear();
  }
}

TEST_F(UpdateTest, ThreadsChangeNoBit) {
  constexpr int64_t kCount = 200003;
  const auto desc = plain({kCount});
  const auto two = make_cpu_device(2);
  const auto threaded = make_cpu_backend(*two);
  const Array x = random_array(desc.shape, 1), y = random_array(desc.shape, 2);
  std::vector<std::vector<double>> results[2];
  for (auto* with : {backend.get(), threaded.get()}) {
    auto& found = results[with == backend.get() ? 0 : 1];
    const auto *a = operand(desc, x), *b = operand(desc, y), *c = operand(desc, Array(desc.shape)),
               *d = operand(desc, Array(desc.shape));
    with->add(desc)->run(on(0), a->tensor(), b->tensor(), c->tensor());
    found.push_back(array(c).values);
    with->activation(Activation::kTanh, desc)->forward(on(0), a->tensor(), c->tensor());
    found.push_back(array(c).values);
    with->update({RmsPropUpdate{}})
        ->run(on(0), {a->tensor().as<float>(), b->tensor().as<float>(), {d->tensor().as<float>()}, kCount});
    found.push_back(array(a).values);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(UpdateTest, SquareSumDoesNotDependOnThreads) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300007}}) {
    const Array x = random_array(Shape{count}, 3);
    std::vector<float> values(x.values.begin(), x.values.end());
    double exact = 0.0, one = -1.0, three = -1.0;
    for (const float v : values) exact += static_cast<double>(v) * static_cast<double>(v);
    backend->square_sum()->run(on(0), values.data(), count, &one);
    const auto many = make_cpu_device(3);
    make_cpu_backend(*many)->square_sum()->run(on(0), values.data(), count, &three);
    EXPECT_NEAR(one, exact, 1e-12 * std::max(1.0, exact));
    EXPECT_EQ(one, three);
  }
}

}  // namespace
}  // namespace rondo::test
