// Losses of one element, written once and compiled for host loops and for CUDA. Formulas of tf.keras 2.10;
// x is the prediction, y the label, and epsilon 1e-7.
//
//   double value(double x, double y) const;
//   double slope(double x, double y) const;  // d value / d x
//   static constexpr bool kAverages;         // over the last axis: the mean, else the sum
#pragma once

#include <cmath>

#include "runtime/base/functors.h"
#include "runtime/kernels/loss.h"

namespace rondo::loss {

constexpr double kEpsilon = 1e-7;  // Keras' K.epsilon()

RONDO_HOST_DEVICE inline double at_least(double x, double least) {
  return x < least ? least : x;  // keeps NaN
}
RONDO_HOST_DEVICE inline double sign(double x) {
  return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
}

// A probability cut to [epsilon, 1 - epsilon]; the gradient passes where it was not cut.
struct Clipped {
  double value;
  bool inside;
};
RONDO_HOST_DEVICE inline Clipped clip(double p) {
  const double low = p < kEpsilon ? kEpsilon : p;
  return {low > 1.0 - kEpsilon ? 1.0 - kEpsilon : low, p >= kEpsilon && p <= 1.0 - kEpsilon};
}

struct Averaged {
  static constexpr bool kAverages = true;
};

struct SquaredError : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const { return (x - y) * (x - y); }
  RONDO_HOST_DEVICE double slope(double x, double y) const { return 2.0 * (x - y); }
};

struct AbsoluteError : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const { return std::fabs(x - y); }
  RONDO_HOST_DEVICE double slope(double x, double y) const { return sign(x - y); }
};

// 100 |(y - x) / max(|y|, epsilon)|
struct PercentageError : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const {
    return 100.0 * std::fabs(x - y) / at_least(std::fabs(y), kEpsilon);
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    return 100.0 * sign(x - y) / at_least(std::fabs(y), kEpsilon);
  }
};

// (log(max(x, epsilon) + 1) - log(max(y, epsilon) + 1))^2
struct LogarithmicError : Averaged {
  RONDO_HOST_DEVICE double difference(double x, double y) const {
    return std::log1p(at_least(x, kEpsilon)) - std::log1p(at_least(y, kEpsilon));
  }
  RONDO_HOST_DEVICE double value(double x, double y) const {
    const double d = difference(x, y);
    return d * d;
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    return x < kEpsilon ? 0.0 : 2.0 * difference(x, y) / (1.0 + x);
  }
};

// A label 0 stands for -1. (Keras looks at the whole batch: it takes labels for 0 and 1 when there are no
// others in it.)
RONDO_HOST_DEVICE inline double side(double y) {
  return y == 0.0 ? -1.0 : y;
}

// max(1 - y x, 0)
struct Hinge : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const { return at_least(1.0 - side(y) * x, 0.0); }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    return 1.0 - side(y) * x > 0.0 ? -side(y) : 0.0;
  }
};

struct SquaredHinge : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const {
    const double h = at_least(1.0 - side(y) * x, 0.0);
    return h * h;
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    return -2.0 * side(y) * at_least(1.0 - side(y) * x, 0.0);
  }
};

// y log(y / x), both cut to [epsilon, 1]; summed over the last axis.
struct KlDivergence {
  static constexpr bool kAverages = false;
  RONDO_HOST_DEVICE static double cut(double p) {
    const double low = at_least(p, kEpsilon);
    return low > 1.0 ? 1.0 : low;
  }
  RONDO_HOST_DEVICE double value(double x, double y) const { return cut(y) * std::log(cut(y) / cut(x)); }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    return x < kEpsilon || x > 1.0 ? 0.0 : -cut(y) / x;
  }
};

// x - y log(x + epsilon)
struct Poisson : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const { return x - y * std::log(x + kEpsilon); }
  RONDO_HOST_DEVICE double slope(double x, double y) const { return 1.0 - y / (x + kEpsilon); }
};

// log(cosh(x - y)), as d + softplus(-2 d) - log(2)
struct LogCosh : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const {
    const double d = std::fabs(x - y);
    return d + std::log1p(std::exp(-2.0 * d)) - std::log(2.0);
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const { return std::tanh(x - y); }
};

// d^2 / 2 where |d| <= delta, else delta |d| - delta^2 / 2
struct Huber : Averaged {
  double delta;
  RONDO_HOST_DEVICE double value(double x, double y) const {
    const double d = std::fabs(x - y);
    return d > delta ? delta * d - 0.5 * delta * delta : 0.5 * d * d;
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    const double d = x - y;
    return std::fabs(d) > delta ? delta * sign(d) : d;
  }
};

// From the probability, cut: -y log(p + epsilon) - (1 - y) log(1 - p + epsilon).
struct BinaryCrossentropy : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const {
    const double p = clip(x).value;
    return -y * std::log(p + kEpsilon) - (1.0 - y) * std::log(1.0 - p + kEpsilon);
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const {
    const Clipped p = clip(x);
    return p.inside ? (1.0 - y) / (1.0 - p.value + kEpsilon) - y / (p.value + kEpsilon) : 0.0;
  }
};

// From the logit, exactly.
struct BinaryLogits : Averaged {
  RONDO_HOST_DEVICE double value(double x, double y) const {
    return at_least(x, 0.0) - x * y + std::log1p(std::exp(-std::fabs(x)));
  }
  RONDO_HOST_DEVICE double slope(double x, double y) const { return 1.0 / (1.0 + std::exp(-x)) - y; }
};

// Losses whose rows are more than sums over elements.
constexpr bool by_row(Loss loss) {
  return loss == Loss::kCategoricalCrossentropy || loss == Loss::kSparseCategoricalCrossentropy ||
         loss == Loss::kCategoricalHinge || loss == Loss::kCosineSimilarity;
}

// nvcc lets functions for both sides call no lambda of a kernel.
#ifdef __CUDACC__
#define RONDO_LOSS_CALLER __device__
#else
#define RONDO_LOSS_CALLER
#endif

// Calls `go` with the functor of a loss that is not by_row().
template <class Go>
RONDO_LOSS_CALLER auto with_element(Loss loss, bool from_logits, double delta, const Go& go) {
  switch (loss) {
    case Loss::kBinaryCrossentropy:
      return from_logits ? go(BinaryLogits()) : go(BinaryCrossentropy());
    case Loss::kMeanAbsoluteError:
      return go(AbsoluteError());
    case Loss::kMeanAbsolutePercentageError:
      return go(PercentageError());
    case Loss::kMeanSquaredLogarithmicError:
      return go(LogarithmicError());
    case Loss::kHinge:
      return go(Hinge());
    case Loss::kSquaredHinge:
      return go(SquaredHinge());
    case Loss::kKlDivergence:
      return go(KlDivergence());
    case Loss::kPoisson:
      return go(Poisson());
    case Loss::kLogCosh:
      return go(LogCosh());
    case Loss::kHuber:
      return go(Huber{{}, delta});
    default:
      return go(SquaredError());
  }
}

// What label smoothing makes of a label: y (1 - alpha) + alpha / classes, of two classes where the loss is
// binary.
struct Smoothing {
  double keep = 1.0;
  double add = 0.0;
  RONDO_HOST_DEVICE double of(double y) const { return y * keep + add; }
};
RONDO_HOST_DEVICE inline Smoothing smoothing(Loss loss, double alpha, int64_t classes) {
  if (loss == Loss::kBinaryCrossentropy) return {1.0 - alpha, alpha / 2.0};
  if (loss == Loss::kCategoricalCrossentropy) return {1.0 - alpha, alpha / static_cast<double>(classes)};
  return {};
}

}  // namespace rondo::loss

namespace rondo {

// The bucket of Metric::kHistogram; what is not in [0, 1] goes to the nearer end, NaN to the first.
RONDO_HOST_DEVICE inline int64_t histogram_bucket(float p, int64_t thresholds) {
  if (!(p > 0.0f)) return 0;
  const float cut = p > 1.0f ? 1.0f : p;
  const auto bucket = static_cast<int64_t>(std::ceil(cut * static_cast<float>(thresholds - 1))) - 1;
  return bucket < 0 ? 0 : bucket;
}

// Throw InvalidArgument for numbers out of range.
void check_loss(const LossSpec& spec);
void check_metric(const MetricSpec& spec);

}  // namespace rondo
