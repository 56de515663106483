// Padding, permuting, joining two tensors, penalties on weights.
#include <gmock/gmock.h>

#include <map>

#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/constraint.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class ArrangeTest : public KernelTest {
 protected:
  TensorDesc blocked(const Shape& shape) {
    return backend->conv2d({.input = plain({shape[0], shape[1], shape[2], 8}), .filters = shape[3]})
        ->output();
  }
};

// Pads in float64; with `reverse` crops.
Array padded(const Array& x, const std::array<int64_t, 4>& p) {
  const Shape& s = x.shape;
  Array y(Shape{s[0], s[1] + p[0] + p[1], s[2] + p[2] + p[3], s[3]});
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t c = i % s[3], w = i / s[3] % s[2], h = i / s[3] / s[2] % s[1], n = i / s[3] / s[2] / s[1];
    y[((n * y.shape[1] + h + p[0]) * y.shape[2] + w + p[2]) * s[3] + c] = x[i];
  }
  return y;
}

TEST_F(ArrangeTest, PaddingInEveryLayoutAndBack) {
  for (const int64_t channels : {1, 3, 8, 17, 32}) {
    for (const auto& padding : {std::array<int64_t, 4>{3, 3, 3, 3}, std::array<int64_t, 4>{0, 1, 0, 1},
                                std::array<int64_t, 4>{2, 0, 1, 4}, std::array<int64_t, 4>{0, 0, 0, 0}}) {
      const Shape shape{2, 5, 4, channels};
      for (const auto& desc : {plain(shape), blocked(shape)}) {
        const auto kernel = backend->pad({.input = desc, .padding = padding});
        const Array x = random_array(shape, 1);
        const Array expected = padded(x, padding);
        const auto *in = operand(kernel->input(), x), *out = result(kernel->output());
        kernel->pad(on(*kernel), in->tensor(), out->tensor());
        EXPECT_EQ(kernel->output().shape, expected.shape);
        EXPECT_EQ(array(out).values, expected.values) << desc.layout.text();
        EXPECT_EQ(padding_mass(out), 0.0);
        const Array dy = random_array(expected.shape, 2);
        const auto *grad = operand(kernel->output(), dy), *dx = result(kernel->input());
        kernel->crop(on(*kernel), grad->tensor(), dx->tensor());
        const Array back = array(dx);
        EXPECT_NEAR(inner(back, x), inner(dy, expected), 1e-9);  // the adjoint
        for (int64_t i = 0; i < back.size(); ++i) EXPECT_NE(back[i], 777.0);
        check_guards();
        operands.clear();
      }
    }
  }
  EXPECT_THROW(backend->pad({.input = plain({2, 3})}), InvalidArgument);
  EXPECT_THROW(backend->pad({.input = plain({2, 3, 3, 1}), .padding = {-1, 0, 0, 0}}), InvalidArgument);
}

TEST_F(ArrangeTest, PermutationsAndTheirReverse) {
  const std::vector<std::pair<Shape, std::vector<int>>> cases{{{3, 5}, {1, 0}},
                                                              {{2, 3, 4}, {0, 2, 1}},
                                                              {{2, 3, 4}, {2, 0, 1}},
                                                              {{2, 3, 4, 5}, {0, 2, 1, 3}},
                                                              {{2, 3, 1, 4, 2}, {4, 2, 0, 1, 3}},
                                                              {{7}, {0}}};
  int round = 0;
  for (const auto& [shape, axes] : cases) {
    const int rank = shape.rank(), reversed = round++ % (rank + 1) - 1;
    const PermuteSpec spec{.input = plain(shape), .axes = axes, .reversed = reversed};
    const auto kernel = backend->permute(spec), back = backend->permute(reverse(spec));
    const Array x = random_array(shape, 1);
    const auto *in = operand(plain(shape), x), *out = result(kernel->output()), *again = result(plain(shape));
    kernel->run(on(*kernel), in->tensor(), out->tensor());
    back->run(on(*back), out->tensor(), again->tensor());
    EXPECT_EQ(array(again).values, x.values);
    const Array y = array(out);
    std::vector<int64_t> strides(axes.size(), 1), index(axes.size());
    for (size_t a = axes.size() - 1; a-- > 0;) strides[a] = strides[a + 1] * shape[static_cast<int>(a) + 1];
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t rest = i, at = 0;
      for (size_t a = axes.size(); a-- > 0;) {
        const int64_t extent = y.shape[static_cast<int>(a)], index_here = rest % extent;
        const bool from_end = static_cast<int>(a) == reversed;
        at += (from_end ? extent - 1 - index_here : index_here) * strides[static_cast<size_t>(axes[a])];
        rest /= extent;
      }
      ASSERT_EQ(y[i], x[at]) << shape.text();
    }
    check_guards();
    operands.clear();
  }
  EXPECT_THROW(backend->permute({.input = plain({2, 3}), .axes = {0, 0}}), InvalidArgument);
  EXPECT_THROW(backend->permute({.input = plain({2, 3}), .axes = {0}}), InvalidArgument);
  EXPECT_THROW(backend->permute({.input = plain({2, 3}), .axes = {1, 0}, .reversed = 2}), InvalidArgument);
}

TEST_F(ArrangeTest, JoiningTwoTensors) {
  const auto value = [](Binary f, double a, double b, double x, double y) {
    return f == Binary::kWeightedSum ? a * x + b * y
           : f == Binary::kMultiply  ? x * y
           : f == Binary::kMaximum   ? std::max(x, y)
                                     : std::min(x, y);
  };
  for (const auto& desc : {plain({5, 7}), plain({2, 3, 5, 6}), blocked({2, 3, 5, 6})}) {
    for (const auto f : {Binary::kWeightedSum, Binary::kMultiply, Binary::kMaximum, Binary::kMinimum}) {
      SCOPED_TRACE(desc.shape.text() + " function " + std::to_string(static_cast<int>(f)));
      const auto kernel = backend->binary({.desc = desc, .function = f, .a = 0.5f, .b = -1.5f});
      Array x = random_array(desc.shape, 1), y = random_array(desc.shape, 2);
      y[3] = x[3];  // a tie: the first takes the gradient
      const Array dout = random_array(desc.shape, 3);
      Array expected(desc.shape), dx(desc.shape), dy(desc.shape);
      for (int64_t i = 0; i < x.size(); ++i) {
        expected[i] = value(f, 0.5, -1.5, x[i], y[i]);
        const bool first = f == Binary::kMaximum ? x[i] >= y[i] : x[i] <= y[i];
        dx[i] = dout[i] * (f == Binary::kWeightedSum ? 0.5
                           : f == Binary::kMultiply  ? y[i]
                           : first                   ? 1.0
                                                     : 0.0);
        dy[i] = dout[i] * (f == Binary::kWeightedSum ? -1.5
                           : f == Binary::kMultiply  ? x[i]
                           : first                   ? 0.0
                                                     : 1.0);
      }
      const auto *a = operand(kernel->desc(), x), *b = operand(kernel->desc(), y),
                 *out = result(kernel->desc());
      kernel->forward(on(*kernel), a->tensor(), b->tensor(), out->tensor());
      EXPECT_LT(relative_error(array(out), expected), 3e-7);
      const auto *grad = operand(kernel->desc(), dout), *da = result(kernel->desc()),
                 *db = result(kernel->desc());
      const bool reads = f != Binary::kWeightedSum;
      kernel->backward(on(*kernel), reads ? a->tensor() : Tensor{}, reads ? b->tensor() : Tensor{},
                       grad->tensor(), da->tensor(), db->tensor());
      EXPECT_LT(relative_error(array(da), dx), 3e-7);
      EXPECT_LT(relative_error(array(db), dy), 3e-7);
      EXPECT_LT(padding_mass(out) + padding_mass(da) + padding_mass(db), 1e-4);
      kernel->backward(on(*kernel), reads ? a->tensor() : Tensor{}, reads ? b->tensor() : Tensor{},
                       grad->tensor(), grad->tensor(), db->tensor());  // in place
      EXPECT_EQ(array(grad).values, array(da).values);
      kernel->forward(on(*kernel), a->tensor(), b->tensor(), b->tensor());
      EXPECT_EQ(array(b).values, array(out).values);
      check_guards();
      operands.clear();
    }
  }
}

TEST_F(ArrangeTest, PenaltiesOnWeights) {
  const auto conv = backend->conv2d({.input = plain({2, 5, 5, 3}), .filters = 6, .kernel_size = {3, 3}});
  for (const auto& desc : {plain({70000}), plain({3, 4}), conv->kernel()}) {
    const auto kernel = backend->penalty({.weights = desc, .rows = 3, .l1 = 0.25, .l2 = 0.5});
    Array w = random_array(desc.shape, 1);
    w[1] = 0.0;
    double expected = 0.0;
    for (const double v : w.values) expected += 0.25 * std::fabs(v) + 0.5 * v * v;
    const auto *weights = operand(desc, w), *sum = number(2.5);
    kernel->add_loss(on(*kernel), weights->tensor(), sum->as<double>());
    EXPECT_NEAR(value(sum), 2.5 + 3.0 * expected, 1e-9 * expected);
    const Array before = random_array(desc.shape, 2);
    const auto* grad = operand(desc, before);
    kernel->add_gradient(on(*kernel), weights->tensor(), grad->tensor());
    Array after = before;
    for (int64_t i = 0; i < w.size(); ++i) {
      const double sign = w[i] > 0.0 ? 1.0 : w[i] < 0.0 ? -1.0 : 0.0;
      after[i] += 3.0 * static_cast<double>(state.inverse_batch) * (0.25 * sign + w[i]);
    }
    EXPECT_LT(relative_error(array(grad), after), 1e-6);
    EXPECT_LT(padding_mass(grad), 1e-4);
    check_guards();
    operands.clear();
  }
  EXPECT_THROW(backend->penalty({.weights = plain({3}), .rows = 1, .l1 = -1.0}), InvalidArgument);
}

TEST_F(ArrangeTest, RepeatingAlongAxes) {
  const std::vector<std::pair<Shape, Shape>> cases{{{3, 1}, {3, 5}},
                                                   {{1, 4, 1}, {6, 4, 3}},
                                                   {{2, 1, 3, 1, 2}, {2, 4, 3, 5, 2}},
                                                   {{1, 1}, {1, 7}},
                                                   {{2, 3}, {2, 3}}};
  for (const auto& [small, large] : cases) {
    SCOPED_TRACE(small.text());
    const auto kernel = backend->broadcast({.input = small, .output = large});
    const Array x = random_array(small, 1), dy = random_array(large, 2);
    Array y(large), dx(small);
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t rest = i, at = 0, stride = 1;
      for (int axis = large.rank(); axis-- > 0;) {
        if (small[axis] > 1) at += rest % large[axis] * stride;
        stride *= small[axis];
        rest /= large[axis];
      }
      y[i] = x[at];
      dx[at] += dy[i];
    }
    const auto *in = operand(plain(small), x), *out = result(plain(large)), *grad = operand(plain(large), dy),
               *sum = result(plain(small));
    kernel->spread(on(*kernel), in->tensor(), out->tensor());
    kernel->sum(on(*kernel), grad->tensor(), sum->tensor());
    EXPECT_EQ(array(out).values, array(operand(plain(large), y)).values);
    EXPECT_LT(relative_error(array(sum), dx), 3e-7);
    check_guards();
    operands.clear();
  }
  EXPECT_THROW(backend->broadcast({.input = {2, 3}, .output = {2, 4}}), InvalidArgument);
  EXPECT_THROW(backend->broadcast({.input = {3}, .output = {2, 3}}), InvalidArgument);
}

TEST_F(ArrangeTest, PreluWithSharedAxes) {
  const Shape shape{3, 4, 5, 2};
  for (const Shape& shared : {Shape{4, 5, 2}, Shape{1, 1, 2}, Shape{4, 1, 1}}) {
    SCOPED_TRACE(shared.text());
    const auto kernel = backend->prelu({.input = shape, .alpha = shared});
    const Array x = random_array(shape, 1), dy = random_array(shape, 2), alpha = random_array(shared, 3);
    Array y(shape), dx(shape), d_alpha(shared);
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t c = i % 2, w = i / 2 % 5, h = i / 10 % 4;
      const int64_t at = ((shared[0] > 1 ? h : 0) * shared[1] + (shared[1] > 1 ? w : 0)) * shared[2] +
                         (shared[2] > 1 ? c : 0);
      y[i] = x[i] > 0.0 ? x[i] : alpha[at] * x[i];
      dx[i] = x[i] > 0.0 ? dy[i] : alpha[at] * dy[i];
      if (x[i] <= 0.0) d_alpha[at] += dy[i] * x[i];
    }
    const auto *in = operand(plain(shape), x), *slope = operand(plain(shared), alpha),
               *grad = operand(plain(shape), dy), *out = result(plain(shape)), *got_dx = result(plain(shape)),
               *got_alpha = result(plain(shared));
    kernel->forward(on(*kernel), in->tensor(), slope->tensor(), out->tensor());
    kernel->backward(on(*kernel), in->tensor(), slope->tensor(), grad->tensor(), got_dx->tensor(),
                     got_alpha->tensor());
    EXPECT_LT(relative_error(array(out), y), 3e-7);
    EXPECT_LT(relative_error(array(got_dx), dx), 3e-7);
    EXPECT_LT(relative_error(array(got_alpha), d_alpha), 1e-6);
    kernel->backward(on(*kernel), in->tensor(), slope->tensor(), grad->tensor(), {}, {});
    check_guards();
    operands.clear();
  }
  EXPECT_THROW(backend->prelu({.input = {2, 3}, .alpha = {2}}), InvalidArgument);
}

// Keras' formulas on each group of weights that shares a norm.
TEST_F(ArrangeTest, ConstraintsOnWeights) {
  const Shape shape{3, 4, 5};
  const std::vector<Constraint> all{Constraint::max_norm(0.5), Constraint::max_norm(1.5, {0, 1}),
                                    Constraint::unit_norm({-1}), Constraint::non_neg(),
                                    Constraint::min_max_norm(1.0, 1.5, 0.25, {2, 0})};
  for (const Constraint& c : all) {
    SCOPED_TRACE(static_cast<int>(c.kind));
    const auto kernel = backend->constraint({.constraint = c, .weights = shape});
    const Array w = random_array(shape, 1);
    std::map<std::vector<int64_t>, double> squares;
    const auto group_of = [&](int64_t i) {
      std::vector<int64_t> index{i / 20, i / 5 % 4, i % 5};
      for (const int axis : c.axes) index[static_cast<size_t>(axis < 0 ? axis + 3 : axis)] = 0;
      return index;
    };
    for (int64_t i = 0; i < w.size(); ++i) squares[group_of(i)] += w[i] * w[i];
    Array expected(shape);
    for (int64_t i = 0; i < w.size(); ++i) {
      const double norm = std::sqrt(squares[group_of(i)]);
      switch (c.kind) {
        case Constraint::Kind::kMaxNorm:
          expected[i] = w[i] * std::min(norm, c.high) / (1e-7 + norm);
          break;
        case Constraint::Kind::kUnitNorm:
          expected[i] = w[i] / (1e-7 + norm);
          break;
        case Constraint::Kind::kMinMaxNorm:
          expected[i] =
              w[i] * (c.rate * std::clamp(norm, c.low, c.high) + (1.0 - c.rate) * norm) / (1e-7 + norm);
          break;
        default:
          expected[i] = std::max(w[i], 0.0);
      }
    }
    const auto *weights = operand(plain(shape), w), *skipped = operand(plain(shape), w);
    kernel->run(on(*kernel), weights->tensor());
    EXPECT_LT(relative_error(array(weights), expected), 5e-7);
    state.skip = 1;  // a step whose gradients were not finite
    const auto before = array(skipped).values;
    kernel->run(on(*kernel), skipped->tensor());
    EXPECT_EQ(array(skipped).values, before);
    state.skip = 0;
    check_guards();
    operands.clear();
  }
  EXPECT_THROW(backend->constraint({.constraint = Constraint::max_norm(1.0, {3}), .weights = shape}),
               InvalidArgument);
  EXPECT_THROW(backend->constraint({.constraint = Constraint::min_max_norm(2.0, 1.0), .weights = shape}),
               InvalidArgument);
}

}  // namespace
}  // namespace rondo::test
