// The losses and metrics that are more than crossentropy, squared error and accuracy (those are in
// elementwise_test.cpp), against formulas in float64 and their numerical gradients.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "runtime/base/error.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

using Row = std::vector<double>;

double mean_of(const Row& x, const Row& y, const std::function<double(double, double)>& f) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += f(x[i], y[i]);
  return sum / static_cast<double>(x.size());
}

double cut(double p, double most) {
  return std::min(std::max(p, 1e-7), most);
}

// Keras' formulas for a row.
double exact(const LossSpec& spec, const Row& x, Row y) {
  const auto classes = static_cast<double>(x.size());
  const double smooth = static_cast<double>(spec.label_smoothing);
  switch (spec.loss) {
    case Loss::kMeanAbsoluteError:
      return mean_of(x, y, [](double p, double l) { return std::abs(p - l); });
    case Loss::kMeanAbsolutePercentageError:
      return 100.0 * mean_of(x, y, [](double p, double l) {
               return std::abs((l - p) / std::max(std::abs(l), 1e-7));
             });
    case Loss::kMeanSquaredLogarithmicError:
      return mean_of(x, y, [](double p, double l) {
        return std::pow(std::log(std::max(p, 1e-7) + 1.0) - std::log(std::max(l, 1e-7) + 1.0), 2.0);
      });
    case Loss::kHinge:
    case Loss::kSquaredHinge:
      return mean_of(x, y, [&](double p, double l) {
        const double h = std::max(1.0 - (l == 0.0 ? -1.0 : l) * p, 0.0);
        return spec.loss == Loss::kHinge ? h : h * h;
      });
    case Loss::kCategoricalHinge: {
      double positive = 0.0, most = -1e300;
      for (size_t i = 0; i < x.size(); ++i) {
        positive += y[i] * x[i];
        most = std::max(most, (1.0 - y[i]) * x[i]);
      }
      return std::max(most - positive + 1.0, 0.0);
    }
    case Loss::kKlDivergence:
      return classes * mean_of(x, y, [](double p, double l) {
               return cut(l, 1.0) * std::log(cut(l, 1.0) / cut(p, 1.0));
             });
    case Loss::kPoisson:
      return mean_of(x, y, [](double p, double l) { return p - l * std::log(p + 1e-7); });
    case Loss::kLogCosh:
      return mean_of(x, y, [](double p, double l) { return std::log(std::cosh(p - l)); });
    case Loss::kHuber:
      return mean_of(x, y, [&](double p, double l) {
        const double d = std::abs(p - l), delta = static_cast<double>(spec.delta);
        return d <= delta ? 0.5 * d * d : delta * d - 0.5 * delta * delta;
      });
    case Loss::kCosineSimilarity: {
      double xx = 0.0, yy = 0.0, xy = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        xx += x[i] * x[i];
        yy += y[i] * y[i];
        xy += x[i] * y[i];
      }
      return -xy / std::sqrt(std::max(xx, 1e-12) * std::max(yy, 1e-12));
    }
    case Loss::kBinaryCrossentropy:
      return mean_of(x, y, [&](double p, double l) {
        l = l * (1.0 - smooth) + smooth / 2.0;
        if (spec.from_logits) p = 1.0 / (1.0 + std::exp(-p));
        if (spec.from_logits) return -l * std::log(p) - (1.0 - l) * std::log(1.0 - p);
        return -l * std::log(cut(p, 1.0 - 1e-7) + 1e-7) -
               (1.0 - l) * std::log(1.0 - cut(p, 1.0 - 1e-7) + 1e-7);
      });
    case Loss::kCategoricalCrossentropy: {
      double sum = 0.0, loss = 0.0;
      for (const double p : x) sum += spec.from_logits ? std::exp(p) : p;
      for (size_t i = 0; i < x.size(); ++i) {
        const double q = (spec.from_logits ? std::exp(x[i]) : x[i]) / sum;
        loss -=
            (y[i] * (1.0 - smooth) + smooth / classes) * std::log(spec.from_logits ? q : cut(q, 1.0 - 1e-7));
      }
      return loss;
    }
    default:
      ADD_FAILURE() << "no formula";
      return 0.0;
  }
}

class MoreLosses : public KernelTest {
 protected:
  // Predictions in (0.05, 0.95) and labels 0 or 1, or soft ones.
  void run(LossSpec spec, const Shape& shape, bool hard, bool weighted) {
    spec.prediction = plain(shape);
    Array x = random_array(shape, 1), y = random_array(shape, 2);
    for (double& v : x.values) v = static_cast<double>(static_cast<float>(0.5 + 0.45 * v));
    for (double& v : y.values)
      v = hard ? (v > 0.0 ? 1.0 : 0.0) : static_cast<double>(static_cast<float>(0.5 + 0.5 * v));
    const int64_t rows = shape[0], classes = shape[shape.rank() - 1], per_row = x.size() / classes / rows;
    std::vector<float> weights;
    for (int64_t r = 0; r < rows; ++r) weights.push_back(weighted ? 0.25f * static_cast<float>(r) : 1.0f);
    const double share = spec.sum_positions ? 1.0 : 1.0 / static_cast<double>(per_row);

    double expected = 0.0;
    Array gradient(shape);
    for (int64_t position = 0; position < rows * per_row; ++position) {
      const auto at = x.values.begin() + position * classes;
      const auto label = y.values.begin() + position * classes;
      Row p(at, at + classes);
      const Row l(label, label + classes);
      const double weight = share * static_cast<double>(weights[static_cast<size_t>(position / per_row)]);
      expected += weight * exact(spec, p, l);
      for (int64_t c = 0; c < classes; ++c) {
        constexpr double kStep = 1e-6;
        double& value = p[static_cast<size_t>(c)];
        const double old = value;
        value = old + kStep;
        const double above = exact(spec, p, l);
        value = old - kStep;
        const double below = exact(spec, p, l);
        value = old;
        gradient[position * classes + c] =
            (above - below) / (2.0 * kStep) * weight * static_cast<double>(state.inverse_batch);
      }
    }
    const auto kernel = backend->loss(spec);
    const auto *in = operand(plain(shape), x), *label = operand(plain(shape), y),
               *grad = result(plain(shape));
    const auto* weight = weighted ? raw(plain({rows}), weights.data()) : nullptr;
    const auto *with = number(), *without = number();
    const Tensor by_row = weight != nullptr ? weight->tensor() : Tensor{};
    kernel->run(on(*kernel), in->tensor(), label->tensor(), with->as<double>(), grad->tensor(), by_row);
    kernel->run(on(*kernel), in->tensor(), label->tensor(), without->as<double>(), Tensor(), by_row);
    EXPECT_NEAR(value(with), expected, 3e-6 * std::max(1.0, std::fabs(expected)));
    EXPECT_NEAR(value(without), value(with), 1e-9 * std::max(1.0, std::fabs(expected)));
    EXPECT_LT(relative_error(array(grad), gradient), 1e-5);
    check_guards();
    operands.clear();
  }
};

TEST_F(MoreLosses, FollowTheirFormulasAndNumericalGradients) {
  for (const Loss kind :
       {Loss::kMeanAbsoluteError, Loss::kMeanAbsolutePercentageError, Loss::kMeanSquaredLogarithmicError,
        Loss::kHinge, Loss::kSquaredHinge, Loss::kCategoricalHinge, Loss::kKlDivergence, Loss::kPoisson,
        Loss::kLogCosh, Loss::kHuber, Loss::kCosineSimilarity, Loss::kBinaryCrossentropy,
        Loss::kCategoricalCrossentropy}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const bool hard = kind != Loss::kMeanAbsolutePercentageError;
    run({.loss = kind, .prediction = {}}, {4, 5}, hard, false);
    run({.loss = kind, .prediction = {}}, {3, 2, 37}, hard, true);
    run({.loss = kind, .prediction = {}, .sum_positions = true}, {3, 2, 7}, hard, true);
    if (kind != Loss::kHinge && kind != Loss::kSquaredHinge)
      run({.loss = kind, .prediction = {}}, {2, 3}, false, false);
  }
}

TEST_F(MoreLosses, SettingsOfTheirOwn) {
  for (const bool logits : {false, true}) {
    for (const Loss kind : {Loss::kBinaryCrossentropy, Loss::kCategoricalCrossentropy}) {
      run({.loss = kind, .prediction = {}, .from_logits = logits, .label_smoothing = 0.2f}, {3, 6}, true,
          true);
    }
  }
  run({.loss = Loss::kHuber, .prediction = {}, .delta = 0.2f}, {5, 8}, true, false);
  const TensorDesc prediction = plain({2, 3});
  EXPECT_THROW(backend->loss({.loss = Loss::kHuber, .prediction = prediction, .delta = 0.0f}),
               InvalidArgument);
  EXPECT_THROW(backend->loss({.loss = Loss::kHuber, .prediction = prediction, .label_smoothing = 0.1f}),
               InvalidArgument);
  EXPECT_THROW(
      backend->loss({.loss = Loss::kBinaryCrossentropy, .prediction = prediction, .label_smoothing = 1.5f}),
      InvalidArgument);
}

TEST_F(MoreLosses, ARowOfNoWeightIsAsIfItWereNotThere) {
  const float x[] = {0.5f, std::numeric_limits<float>::quiet_NaN(), 1.0f, 2.0f},
              y[] = {0.0f, 0.0f, 0.0f, 1.0f}, weights[] = {0.0f, 3.0f};
  const auto kernel = backend->loss({.loss = Loss::kMeanSquaredError, .prediction = plain({2, 2})});
  const auto* sum = number();
  kernel->run(on(*kernel), raw(plain({2, 2}), x)->tensor(), raw(plain({2, 2}), y)->tensor(),
              sum->as<double>(), Tensor(), raw(plain({2}), weights)->tensor());
  EXPECT_DOUBLE_EQ(value(sum), 3.0);
}

class MoreMetrics : public KernelTest {
 protected:
  std::vector<double> run(MetricSpec spec, const Shape& shape, const std::vector<float>& x, const Tensor& y,
                          const Tensor& weights = {}) {
    spec.prediction = plain(shape);
    const auto kernel = backend->metric(spec);
    const int64_t count = sums_of(spec.metric, spec.thresholds);
    const auto* sums = result({Shape{count}, DType::kF64, {}});
    kernel->run(on(*kernel), raw(plain(shape), x.data())->tensor(), y, sums->as<double>(), weights);
    check_guards();
    return sums->read<double>();
  }
  Tensor floats(const Shape& shape, const std::vector<float>& y) {
    return raw(plain(shape), y.data())->tensor();
  }
  Tensor classes(const std::vector<int32_t>& y) {
    return raw({Shape{static_cast<int64_t>(y.size())}, DType::kI32, {}}, y.data())->tensor();
  }
};

TEST_F(MoreMetrics, TopKCountsWhoIsAheadOfTheLabel) {
  const std::vector<float> x{.1f, .4f, .4f, .1f,  // ties do not push a label out
                             .4f, .3f, .2f, .1f, .1f, .2f, .3f, std::numeric_limits<float>::infinity()};
  const auto sparse = [&](int64_t k, const std::vector<int32_t>& labels) {
    return run({.metric = Metric::kSparseTopKCategoricalAccuracy, .prediction = {}, .k = k}, {3, 4}, x,
               classes(labels))[0];
  };
  EXPECT_EQ(sparse(1, {2, 0, 3}), 2.0);
  EXPECT_EQ(sparse(2, {0, 2, 2}), 0.0);
  EXPECT_EQ(sparse(3, {0, 2, 2}), 2.0);
  EXPECT_EQ(sparse(4, {3, 3, 3}), 2.0);
  const std::vector<float> dense{0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0};
  EXPECT_EQ(run({.metric = Metric::kTopKCategoricalAccuracy, .prediction = {}, .k = 2}, {3, 4}, x,
                floats({3, 4}, dense))[0],
            1.0);
  EXPECT_EQ(run({.metric = Metric::kTopKCategoricalAccuracy, .prediction = {}, .k = 3}, {3, 4}, x,
                floats({3, 4}, dense))[0],
            2.0);
}

TEST_F(MoreMetrics, ConfusionAndHistogramCountElements) {
  const std::vector<float> x{0.0f, 0.2f, 0.5f, 0.51f, 0.9f, 1.0f}, y{0, 1, 1, 1, 0, 1};
  using Counts = std::vector<double>;
  EXPECT_EQ(run({.metric = Metric::kConfusion, .prediction = {}}, {3, 2}, x, floats({3, 2}, y)),
            (Counts{2, 1, 2}));
  EXPECT_EQ(
      run({.metric = Metric::kConfusion, .prediction = {}, .threshold = 0.1f}, {6, 1}, x, floats({6, 1}, y)),
      (Counts{4, 1, 0}));
  // Thresholds below 0, at 1/3, at 2/3 and above 1.
  EXPECT_EQ(
      run({.metric = Metric::kHistogram, .prediction = {}, .thresholds = 4}, {6, 1}, x, floats({6, 1}, y)),
      (Counts{1, 2, 1, 0, 1, 0, 1, 0}));
  EXPECT_THROW(backend->metric({.metric = Metric::kHistogram, .prediction = plain({2, 1}), .thresholds = 1}),
               InvalidArgument);
  EXPECT_THROW(
      backend->metric({.metric = Metric::kConfusion, .prediction = plain({2, 1}), .threshold = 1.0f}),
      InvalidArgument);
}

// Rows of two places with two numbers each: weights of rows, and of places.
TEST_F(MoreMetrics, CountRowsAsTheirWeightsSay) {
  const Shape shape{2, 2, 2};
  const std::vector<float> x{0.1f, 0.9f, 0.6f, 0.2f, 0.8f, 0.4f, std::nanf(""), 0.7f};
  const std::vector<float> y{0, 1, 0, 1, 1, 1, 1, 0};
  const std::vector<float> by_row{2.0f, 0.5f}, by_place{2.0f, 1.0f, 0.5f, 0.0f};
  const Tensor want = floats(shape, y), rows = floats({2}, by_row), places = floats({2, 2}, by_place);
  const auto sum = [&](Metric metric, const Tensor& weights) {
    return run({.metric = metric, .prediction = {}}, shape, x, want, weights)[0];
  };
  EXPECT_NEAR(sum(Metric::kOnes, {}), 2.0, 1e-12);
  EXPECT_NEAR(sum(Metric::kOnes, rows), 2.5, 1e-12);
  EXPECT_NEAR(sum(Metric::kOnes, places), 1.75, 1e-12);
  // Absolute errors by place: 0.1, 0.7, 0.4 and NaN, which weighs nothing.
  EXPECT_NEAR(sum(Metric::kMeanAbsoluteError, places), (2.0 * 0.1 + 0.7 + 0.5 * 0.4) / 2.0, 1e-7);
  EXPECT_NEAR(sum(Metric::kBinaryAccuracy, places), (2.0 * 1.0 + 0.0 + 0.5 * 0.5) / 2.0, 1e-12);
  EXPECT_NEAR(sum(Metric::kCategoricalAccuracy, places), (2.0 + 0.0 + 0.5) / 2.0, 1e-12);
  using Counts = std::vector<double>;
  EXPECT_EQ(run({.metric = Metric::kConfusion, .prediction = {}}, shape, x, want, places),
            (Counts{2.5, 1, 1.5}));
  EXPECT_EQ(run({.metric = Metric::kHistogram, .prediction = {}, .thresholds = 3}, shape, x, want, places),
            (Counts{1.5, 2.5, 0, 2, 1, 0}));
  const Shape sparse_shape{2, 2};
  const std::vector<float> z{0.1f, 0.9f, 0.6f, 0.2f};
  EXPECT_EQ(run({.metric = Metric::kSparseCategoricalAccuracy, .prediction = {}}, sparse_shape, z,
                classes({1, 1}), rows)[0],
            2.0);
}

// Weights of places, and a scale of the gradient that leaves the sum alone.
TEST_F(MoreLosses, WeighPlacesAndScaleGradients) {
  const Shape shape{2, 2, 1};
  const auto kernel =
      backend->loss({.loss = Loss::kMeanSquaredError, .prediction = plain(shape), .gradient_scale = 0.25});
  const float x[] = {1.0f, 2.0f, 3.0f, 4.0f}, y[] = {0.0f, 0.0f, 0.0f, 0.0f}, w[] = {1.0f, 0.0f, 2.0f, 0.5f};
  const auto* sum = number();
  const auto* grad = result(plain(shape));
  kernel->run(on(*kernel), raw(plain(shape), x)->tensor(), raw(plain(shape), y)->tensor(), sum->as<double>(),
              grad->tensor(), raw(plain({2, 2}), w)->tensor());
  EXPECT_DOUBLE_EQ(value(sum), (1.0 + 0.0 + 18.0 + 8.0) / 2.0);
  const std::vector<float> got = grad->read<float>();
  const float scale = 0.25f * 2.0f / 2.0f * state.inverse_batch;
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(got[i], scale * w[i] * x[i]) << i;
}

}  // namespace
}  // namespace rondo::test
