#include "runtime/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/loss_rules.h"

namespace rondo::cpu {
namespace {

using loss::clip;

// One row of a loss: `x` prediction, `y` its label (null for sparse), `label` the class (sparse). Writes
// `grad` (when not null) scaled by `weight` and returns the loss.
struct RowArguments {
  loss::Smoothing smoothing;
  double delta;
  const float* x;
  const float* y;
  int32_t label;
  int64_t classes;
  double weight;
  float* grad;
};

// exp(x - max(x)) and its sum; without a place to write, in tiles on the stack.
double exponentials(const float* x, int64_t classes, float shift, float* out) {
  if (out != nullptr) return exp_shifted(x, shift, out, classes);
  constexpr int64_t kTile = 256;
  float tile[kTile];
  double sum = 0.0;
  for (int64_t i = 0; i < classes; i += kTile) {
    sum += exp_shifted(x + i, shift, tile, std::min(kTile, classes - i));
  }
  return sum;
}

// loss = sum(y) log(sum(exp(x))) - sum(y x); gradient p sum(y) - y.
double categorical_logits(const RowArguments& a) {
  const float shift = max_float(a.x, a.classes);
  const double sum = exponentials(a.x, a.classes, shift, a.grad);
  double mass = sum_floats(a.y, a.classes), dot = dot_floats(a.y, a.x, a.classes);
  if (a.smoothing.add != 0.0) {
    mass = a.smoothing.keep * mass + a.smoothing.add * static_cast<double>(a.classes);
    dot = a.smoothing.keep * dot + a.smoothing.add * sum_floats(a.x, a.classes);
  }
  const double loss = mass * (std::log(sum) + static_cast<double>(shift)) - dot;
  if (a.grad != nullptr) {
    const double scale = mass * a.weight / sum;
    for (int64_t c = 0; c < a.classes; ++c) {
      a.grad[c] =
          static_cast<float>(scale * static_cast<double>(a.grad[c]) - a.weight * a.smoothing.of(a.y[c]));
    }
  }
  return loss;
}

double sparse_logits(const RowArguments& a) {
  const float shift = max_float(a.x, a.classes);
  const double sum = exponentials(a.x, a.classes, shift, a.grad);
  const double at = static_cast<double>(a.x[a.label]) - static_cast<double>(shift);
  if (a.grad != nullptr) {
    const double own = static_cast<double>(a.grad[a.label]) / sum;
    scale_floats(a.grad, static_cast<float>(a.weight / sum), a.grad, a.classes);
    a.grad[a.label] = static_cast<float>((own - 1.0) * a.weight);
  }
  return std::log(sum) - at;
}

// p is first divided by its sum s, then clipped: with q = p / s and h = -y / q where q was not clipped,
// dL/dp = (h - sum(h q)) / s.
double categorical_probabilities(const RowArguments& a) {
  const double sum = sum_floats(a.x, a.classes);
  double loss = 0.0, flow = 0.0;
  for (int64_t c = 0; c < a.classes; ++c) {
    const double y = a.smoothing.of(a.y[c]);
    const auto q = clip(static_cast<double>(a.x[c]) / sum);
    loss -= y * std::log(q.value);
    if (q.inside) flow -= y;
  }
  if (a.grad == nullptr) return loss;
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto q = clip(static_cast<double>(a.x[c]) / sum);
    const double h = q.inside ? -a.smoothing.of(a.y[c]) / q.value : 0.0;
    a.grad[c] = static_cast<float>((h - flow) / sum * a.weight);
  }
  return loss;
}

// The logarithms of the clipped probabilities act as logits, which normalizes them again.
double sparse_probabilities(const RowArguments& a) {
  double sum = 0.0;
  for (int64_t c = 0; c < a.classes; ++c) sum += clip(static_cast<double>(a.x[c])).value;
  const auto own = clip(static_cast<double>(a.x[a.label]));
  if (a.grad != nullptr) {
    for (int64_t c = 0; c < a.classes; ++c) {
      const auto p = clip(static_cast<double>(a.x[c]));
      const double slope = 1.0 / sum - (c == a.label ? 1.0 / own.value : 0.0);
      a.grad[c] = static_cast<float>(p.inside ? slope * a.weight : 0.0);
    }
  }
  return std::log(sum) - std::log(own.value);
}

double categorical_hinge(const RowArguments& a) {
  double positive = 0.0, most = -std::numeric_limits<double>::infinity();
  int64_t equal = 0;  // how many have the maximum
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto x = static_cast<double>(a.x[c]), y = static_cast<double>(a.y[c]);
    positive += y * x;
    const double other = (1.0 - y) * x;
    if (other == most) ++equal;
    if (other > most || std::isnan(other)) {
      most = other;
      equal = 1;
    }
  }
  const double loss = loss::at_least(most - positive + 1.0, 0.0);
  if (a.grad == nullptr) return loss;
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto x = static_cast<double>(a.x[c]), y = static_cast<double>(a.y[c]);
    const double slope = ((1.0 - y) * x == most ? (1.0 - y) / static_cast<double>(equal) : 0.0) - y;
    a.grad[c] = static_cast<float>(most - positive + 1.0 > 0.0 ? slope * a.weight : 0.0);
  }
  return loss;
}

double cosine_similarity(const RowArguments& a) {
  constexpr double kLeast = 1e-12;  // of squared norms, as in TensorFlow
  const double xx = dot_floats(a.x, a.x, a.classes), yy = dot_floats(a.y, a.y, a.classes);
  const double x_norm = std::sqrt(loss::at_least(xx, kLeast)), y_norm = std::sqrt(loss::at_least(yy, kLeast));
  const double cosine = dot_floats(a.x, a.y, a.classes) / (x_norm * y_norm);
  for (int64_t c = 0; a.grad != nullptr && c < a.classes; ++c) {
    const double along = xx > kLeast ? cosine * static_cast<double>(a.x[c]) / x_norm : 0.0;
    a.grad[c] = static_cast<float>((along - static_cast<double>(a.y[c]) / y_norm) / x_norm * a.weight);
  }
  return -cosine;
}

template <class F>
double elements(const F& f, const RowArguments& a) {
  const double share = F::kAverages ? 1.0 / static_cast<double>(a.classes) : 1.0;
  double loss = 0.0;
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto x = static_cast<double>(a.x[c]);
    const double y = a.smoothing.of(static_cast<double>(a.y[c]));
    loss += f.value(x, y);
    if (a.grad != nullptr) a.grad[c] = static_cast<float>(f.slope(x, y) * share * a.weight);
  }
  return loss * share;
}

using RowLoss = double (*)(const RowArguments&);
RowLoss row_loss(const LossSpec& spec) {
  switch (spec.loss) {
    case Loss::kCategoricalCrossentropy:
      return spec.from_logits ? categorical_logits : categorical_probabilities;
    case Loss::kSparseCategoricalCrossentropy:
      return spec.from_logits ? sparse_logits : sparse_probabilities;
    case Loss::kCategoricalHinge:
      return categorical_hinge;
    case Loss::kCosineSimilarity:
      return cosine_similarity;
    case Loss::kHuber:
      return [](const RowArguments& a) { return elements(loss::Huber{{}, a.delta}, a); };
    default:
      break;
  }
  return loss::with_element(spec.loss, spec.from_logits, 1.0, []<class F>(const F&) -> RowLoss {
    if constexpr (std::is_empty_v<F>) return [](const RowArguments& a) { return elements(F(), a); };
    return nullptr;  // has its case above
  });
}

// The weight of a position.
class WeightOf {
 public:
  WeightOf(const Tensor& weights, int64_t positions)
      : weights_(weights.as<const float>()),
        each_(weights_ != nullptr ? positions / weights.desc.elements() : 1) {}
  double operator()(int64_t position) const {
    return weights_ != nullptr ? static_cast<double>(weights_[position / each_]) : 1.0;
  }

 private:
  const float* weights_;
  int64_t each_;  // positions that share a weight
};

// Losses work on few numbers (rows times classes) in one thread. Where a row holds several predictions
// (axes between the first and the last), its loss is their mean.
class CpuLoss final : public LossKernel {
 public:
  explicit CpuLoss(const LossSpec& spec)
      : loss_(row_loss(spec)),
        smoothing_(loss::smoothing(spec.loss, static_cast<double>(spec.label_smoothing),
                                   spec.prediction.shape[spec.prediction.shape.rank() - 1])),
        delta_(static_cast<double>(spec.delta)),
        sum_positions_(spec.sum_positions),
        gradient_scale_(spec.gradient_scale),
        sparse_(spec.loss == Loss::kSparseCategoricalCrossentropy),
        classes_(spec.prediction.shape[spec.prediction.shape.rank() - 1]),
        positions_(spec.prediction.elements() / classes_),
        per_row_(positions_ / spec.prediction.shape[0]),
        label_(spec.prediction) {
    if (!sparse_) return;
    const auto extents = spec.prediction.shape.extents();
    label_ = {Shape(extents.first(extents.size() - 1)), DType::kI32, {}};
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& label() const override { return label_; }

  void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* loss_sum,
           const Tensor& grad, const Tensor& weights) override {
    RONDO_CHECK(!grad || on.state != nullptr);
    const double share = sum_positions_ ? 1.0 : 1.0 / static_cast<double>(per_row_);
    const double scale = grad ? static_cast<double>(on.state->inverse_batch) * share * gradient_scale_ : 0.0;
    const WeightOf weight_of(weights, positions_);
    RowArguments row{smoothing_,
                     delta_,
                     prediction.as<const float>(),
                     sparse_ ? nullptr : label.as<const float>(),
                     0,
                     classes_,
                     scale,
                     grad.as<float>()};
    double sum = 0.0;
    for (int64_t i = 0; i < positions_; ++i) {
      if (sparse_) {
        row.label = label.as<const int32_t>()[i];
        require(row.label >= 0 && row.label < classes_, "label {} at row {} is outside of 0..{}", row.label,
                i / per_row_, classes_ - 1);
      }
      const double weight = weight_of(i);
      row.weight = scale * weight;
      const double value = loss_(row);
      if (weight != 0.0) {
        sum += value * weight;
      } else if (row.grad != nullptr) {  // as if the row were not there, whatever it holds
        std::fill_n(row.grad, classes_, 0.0f);
      }
      row.x += classes_;
      if (!sparse_) row.y += classes_;
      if (row.grad != nullptr) row.grad += classes_;
    }
    *loss_sum = sum * share;
  }

 private:
  RowLoss loss_;
  loss::Smoothing smoothing_;
  double delta_;
  bool sum_positions_;
  double gradient_scale_;
  bool sparse_;
  int64_t classes_, positions_, per_row_;
  TensorDesc label_;
};

int64_t first_maximum(const float* x, int64_t count) {
  return std::max_element(x, x + count) - x;
}

class CpuMetric final : public MetricKernel {
 public:
  explicit CpuMetric(const MetricSpec& spec)
      : spec_(spec),
        threshold_(spec.from_logits ? logit(spec.threshold) : spec.threshold),
        classes_(spec.prediction.shape[spec.prediction.shape.rank() - 1]),
        positions_(spec.prediction.elements() / classes_),
        per_row_(positions_ / spec.prediction.shape[0]) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution&, const Tensor& prediction, const Tensor& label, double* sums,
           const Tensor& weights) override {
    const auto* x = prediction.as<const float>();
    const WeightOf weight_of(weights, positions_);
    if (spec_.metric == Metric::kConfusion) return confusion(x, label.as<const float>(), weight_of, sums);
    if (spec_.metric == Metric::kHistogram) return histogram(x, label.as<const float>(), weight_of, sums);
    double total = 0.0;
    for (int64_t i = 0; i < positions_; ++i, x += classes_) {
      const double weight = weight_of(i);
      if (weight != 0.0) total += of_position(x, label, i) * weight;
    }
    *sums = total / static_cast<double>(per_row_);
  }

 private:
  double of_position(const float* x, const Tensor& label, int64_t i) const {
    switch (spec_.metric) {
      case Metric::kOnes:
        return 1.0;
      case Metric::kSparseCategoricalAccuracy:
        return first_maximum(x, classes_) == label.as<const int32_t>()[i] ? 1.0 : 0.0;
      case Metric::kSparseTopKCategoricalAccuracy:
        return among_top(x, label.as<const int32_t>()[i]);
      default:
        return row(x, label.as<const float>() + i * classes_);
    }
  }

  static float logit(float p) { return std::log(p / (1.0f - p)); }

  double row(const float* x, const float* y) const {
    if (spec_.metric == Metric::kCategoricalAccuracy) {
      return first_maximum(x, classes_) == first_maximum(y, classes_) ? 1.0 : 0.0;
    }
    if (spec_.metric == Metric::kTopKCategoricalAccuracy) return among_top(x, first_maximum(y, classes_));
    double total = 0.0;
    for (int64_t c = 0; c < classes_; ++c) {
      const double d = static_cast<double>(x[c]) - static_cast<double>(y[c]);
      if (spec_.metric == Metric::kBinaryAccuracy) {
        total += y[c] == (x[c] > threshold_ ? 1.0f : 0.0f) ? 1.0 : 0.0;
      } else {
        total += spec_.metric == Metric::kMeanSquaredError ? d * d : std::fabs(d);
      }
    }
    return total / static_cast<double>(classes_);
  }

  double among_top(const float* x, int64_t label) const {
    if (label < 0 || label >= classes_) return 0.0;
    int64_t more = 0;
    for (int64_t c = 0; c < classes_; ++c) {
      if (!std::isfinite(x[c])) return 0.0;
      if (x[c] > x[label]) ++more;
    }
    return more < spec_.k ? 1.0 : 0.0;
  }

  void confusion(const float* x, const float* y, const WeightOf& weight_of, double* sums) const {
    sums[0] = sums[1] = sums[2] = 0.0;
    for (int64_t i = 0; i < positions_ * classes_; ++i) {
      const bool above = x[i] > threshold_, positive = y[i] != 0.0f;
      if (above || positive) sums[!above ? 2 : positive ? 0 : 1] += weight_of(i / classes_);
    }
  }

  void histogram(const float* x, const float* y, const WeightOf& weight_of, double* sums) const {
    std::fill_n(sums, 2 * spec_.thresholds, 0.0);
    for (int64_t i = 0; i < positions_ * classes_; ++i) {
      sums[histogram_bucket(x[i], spec_.thresholds) + (y[i] != 0.0f ? 0 : spec_.thresholds)] +=
          weight_of(i / classes_);
    }
  }

  MetricSpec spec_;
  float threshold_;
  int64_t classes_, positions_, per_row_;
};

void check_prediction(const TensorDesc& prediction, const char* what) {
  require_canonical(prediction, what);
  require(prediction.shape.rank() >= 2, "{} reads (rows, ..., classes), got {}", what,
          prediction.shape.text());
}

}  // namespace

std::unique_ptr<LossKernel> make_loss(ContextPtr, const LossSpec& spec) {
  check_prediction(spec.prediction, "a loss");
  check_loss(spec);
  return std::make_unique<CpuLoss>(spec);
}

std::unique_ptr<MetricKernel> make_metric(ContextPtr, const MetricSpec& spec) {
  check_prediction(spec.prediction, "a metric");
  check_metric(spec);
  return std::make_unique<CpuMetric>(spec);
}

}  // namespace rondo::cpu
