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
  const std::vector<ActivationFunction> functions{
      Activation::kLinear,
      Activation::kRelu,
      Activation::kSigmoid,
      Activation::kTanh,
      Activation::kElu,
      ActivationFunction::elu(0.3f),
      Activation::kSelu,
      Activation::kSoftplus,
      Activation::kSoftsign,
      Activation::kHardSigmoid,
      Activation::kExponential,
      Activation::kSwish,
      Activation::kGelu,
      ActivationFunction::clipped_relu(3.0f, 0.0f, 0.0f),
      ActivationFunction::clipped_relu(HUGE_VALF, 0.2f, 0.0f),
      ActivationFunction::clipped_relu(4.0f, 0.1f, 1.5f),
  };
  for (const auto& f : functions) {
    for (const auto& desc :
         {plain({5, 7}), plain({1, 1}), plain({2, 3, 5, 6}), blocked({2, 3, 5, 6}), blocked({2, 3, 5, 16})}) {
      SCOPED_TRACE(desc.shape.text() + " activation " + std::to_string(static_cast<int>(f.kind)));
      const auto kernel = backend->activation(f, desc);
      Array x = random_array(desc.shape, 1);
      for (double& v : x.values) v = static_cast<double>(static_cast<float>(v * 5.0));
      const Array dy = random_array(desc.shape, 2);
      const auto *in = operand(kernel->desc(), x), *out = result(kernel->desc());
      kernel->forward(on(*kernel), in->tensor(), out->tensor());
      EXPECT_LT(relative_error(array(out), activation(x, f)), 3e-7);
      EXPECT_LT(padding_mass(out), 1e-4);
      const auto *grad = operand(kernel->desc(), dy), *dx = result(kernel->desc());
      const auto* kept = derived_from_input(f.kind) ? in : out;
      kernel->backward(on(*kernel), kept->tensor(), grad->tensor(), dx->tensor());
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
  const std::vector<float> got_s = s->read<float>(), got_t = t->read<float>();
  double worst_sigmoid = 0.0, worst_tanh = 0.0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double exact_s = 1.0 / (1.0 + std::exp(-x[i])), exact_t = std::tanh(x[i]);
    worst_sigmoid = std::max(worst_sigmoid, std::fabs(got_s[static_cast<size_t>(i)] - exact_s) / exact_s);
    if (x[i] == 0.0) continue;
    worst_tanh = std::max(worst_tanh, std::fabs(got_t[static_cast<size_t>(i)] / exact_t - 1.0));
  }
  const double most = on_host() ? 2e-7 : 4e-7;  // CUDA's exp and tanh are right to 2 units in the last place
  EXPECT_LT(worst_sigmoid, most);
  EXPECT_LT(worst_tanh, most);

  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const auto small = backend->activation(Activation::kTanh, plain({6}));
  const auto logistic = backend->activation(Activation::kSigmoid, plain({6}));
  const float values[6] = {infinity, -infinity, 0.0f, nan, 1000.0f, -1000.0f};
  const auto *special = raw(plain({6}), values), *result_of = result(plain({6}));
  small->forward(on(*small), special->tensor(), result_of->tensor());
  std::vector<float> out = result_of->read<float>();
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -1.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_TRUE(std::isnan(out[3]));
  logistic->forward(on(*logistic), special->tensor(), result_of->tensor());
  out = result_of->read<float>();
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
    std::vector<const Guarded*> back_memory;
    for (size_t i = 0; i < inputs.size(); ++i) {
      arrays.push_back(random_array(inputs[i].shape, i));
      parts.push_back(operand(inputs[i], arrays[i])->tensor());
      back_memory.push_back(result(inputs[i]));
      back.push_back(back_memory.back()->tensor());
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
      const std::vector<float> got = back_memory[i]->read<float>();
      for (int64_t k = 0; k < arrays[i].size(); ++k) {
        EXPECT_EQ(got[static_cast<size_t>(k)], static_cast<float>(arrays[i][k]));
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
        (sparse ? raw(kernel->label(), classes.data()) : operand(plain(y.shape), y))->tensor();
    const auto *in = operand(plain(x.shape), x), *grad = result(plain(x.shape));
    const auto *with = number(), *without = number();
    kernel->run(on(*kernel), in->tensor(), label, with->as<double>(), grad->tensor());
    kernel->run(on(*kernel), in->tensor(), label, without->as<double>(), Tensor());
    const double exact = loss(x, y, kind, logits);
    EXPECT_NEAR(value(with), exact, 2e-6 * std::max(1.0, std::fabs(exact)));
    EXPECT_NEAR(value(without), value(with), 1e-9 * std::max(1.0, std::fabs(exact)));
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

TEST_F(LossTest, ALabelOutsideTheClassesIsNamedOrMakesTheLossNan) {
  const auto kernel = backend->loss({.prediction = plain({2, 3}), .from_logits = true});
  const auto* x = operand(plain({2, 3}), Array(Shape{2, 3}));
  for (const int32_t bad : {3, -1}) {
    const int32_t y[2] = {0, bad};
    const auto* label = raw(kernel->label(), y);
    const auto *sum = number(), *grad = result(plain({2, 3}));
    if (!on_host()) {
      kernel->run(on(*kernel), x->tensor(), label->tensor(), sum->as<double>(), grad->tensor());
      EXPECT_TRUE(std::isnan(value(sum)));
      const std::vector<float> g = grad->read<float>();
      EXPECT_EQ(std::vector<float>(g.begin() + 3, g.end()), (std::vector<float>{0.0f, 0.0f, 0.0f}));
      EXPECT_NE(g[0], 0.0f);
      continue;
    }
    try {
      kernel->run(on(*kernel), x->tensor(), label->tensor(), sum->as<double>(), Tensor());
      FAIL() << "accepted label " << bad;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("row 1"), std::string::npos) << error.what();
    }
  }
}

TEST_F(LossTest, NanReachesTheLoss) {
  const auto kernel = backend->loss({.prediction = plain({1, 3}), .from_logits = true});
  const float x[3] = {0.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f};
  const int32_t y[1] = {0};
  const auto* sum = number();
  kernel->run(on(*kernel), raw(plain({1, 3}), x)->tensor(), raw(kernel->label(), y)->tensor(),
              sum->as<double>(), Tensor());
  EXPECT_TRUE(std::isnan(value(sum)));
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
    const auto *in = operand(plain(shape), x), *target = operand(plain(shape), y),
               *target_classes = raw({label.shape, DType::kI32, {}}, sparse.data());
    for (const auto kind : {Metric::kCategoricalAccuracy, Metric::kSparseCategoricalAccuracy,
                            Metric::kBinaryAccuracy, Metric::kMeanSquaredError, Metric::kMeanAbsoluteError}) {
      for (const bool logits : {false, true}) {
        const bool is_sparse = kind == Metric::kSparseCategoricalAccuracy;
        const auto kernel =
            backend->metric({.metric = kind, .prediction = plain(shape), .from_logits = logits});
        const auto* sum = number();
        kernel->run(on(*kernel), in->tensor(), (is_sparse ? target_classes : target)->tensor(),
                    sum->as<double>());
        EXPECT_NEAR(value(sum), metric(x, is_sparse ? label : y, kind, logits), 1e-6);
      }
    }
  }
}

class UpdateTest : public ElementwiseTest {
 protected:
  std::vector<float> step(const UpdateSpec& spec, std::vector<float> gradients = {0.1f, -0.2f, 0.3f}) {
    // Golden values: one weight, three gradients one after another.
    const auto kernel = backend->update(spec);
    const float one = 1.0f, zero = 0.0f;
    const TensorDesc single = plain({1});
    const auto *w = raw(single, &one), *first = raw(single, &zero), *second = raw(single, &zero);
    std::vector<float> after;
    for (size_t t = 0; t < gradients.size(); ++t) {
      state.update = static_cast<int64_t>(t) + 1;
      const auto* g = raw(single, &gradients[t]);
      kernel->run(on(*kernel),
                  {w->as<float>(), g->as<float>(), {first->as<float>(), second->as<float>()}, 1});
      after.push_back(w->read<float>()[0]);
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
    const auto *first = operand(plain(shape), Array(shape)), *second = operand(plain(shape), Array(shape));
    for (int64_t i = 0; i < kCount; i += 7777) {
      kernel->run(
          on(*kernel),
          {alone->as<float>() + i, g->as<float>() + i, {first->as<float>() + i, second->as<float>() + i}, 1});
      EXPECT_EQ(w->read<float>()[static_cast<size_t>(i)], alone->read<float>()[static_cast<size_t>(i)]);
    }
    check_guards();
    operands.clear();
  }
}

TEST_F(UpdateTest, SquareSum) {
  const auto kernel = backend->square_sum();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300007}}) {
    const Array x = random_array(Shape{count}, 3);
    double exact = 0.0;
    for (const double v : x.values) exact += v * v;
    const auto *values = operand(plain({count}), x), *sum = number(), *again = number();
    kernel->run(on(*kernel), values->as<float>(), count, sum->as<double>());
    kernel->run(on(*kernel), values->as<float>(), count, again->as<double>());
    EXPECT_NEAR(value(sum), exact, 1e-12 * std::max(1.0, exact));
    EXPECT_EQ(value(sum), value(again));
  }
}

TEST_F(UpdateTest, ClippingByNormLowersTheClipScale) {
  const double squares[3] = {9.0, 16.0, 144.0};
  const auto* sums = raw({Shape{3}, DType::kF64, {}}, squares);
  for (const double limit : {6.5, 13.0, 20.0}) {
    const auto kernel = backend->clip(limit);
    const auto* norm = number();
    state.clip_scale = 0.5f;
    const Execution execution = on(*kernel);
    kernel->run(execution, sums->as<double>(), 3, state_memory.as<StepState>(), norm->as<double>());
    EXPECT_DOUBLE_EQ(value(norm), 13.0);
    StepState after;
    stream->copy(&after, state_memory.data(), sizeof(after));
    stream->synchronize();
    EXPECT_FLOAT_EQ(after.clip_scale, static_cast<float>(0.5 * std::min(1.0, limit / 13.0)));
  }
  EXPECT_THROW(backend->clip(0.0), InvalidArgument);
}

TEST_F(UpdateTest, TheTailHoldsSumsAndTheVote) {
  const double values[2] = {1.5, -2.25};
  state.vote = 3.0f;
  const auto* sums = raw({Shape{2}, DType::kF64, {}}, values);
  const auto* tail = result(plain({3}));
  const auto kernel = backend->tail();
  kernel->run(on(*kernel), sums->as<double>(), 2, tail->as<float>());
  EXPECT_EQ(tail->read<float>(), (std::vector<float>{1.5f, -2.25f, 3.0f}));
  check_guards();
}

}  // namespace
}  // namespace rondo::test
