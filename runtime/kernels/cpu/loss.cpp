#include "runtime/kernels/loss.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loops.h"

namespace rondo::cpu {
namespace {

constexpr double kEpsilon = 1e-7;  // Keras' K.epsilon()

struct Clipped {
  double value;
  bool inside;  // the gradient passes
};
Clipped clip(double p) {
  return {std::min(std::max(p, kEpsilon), 1.0 - kEpsilon), p >= kEpsilon && p <= 1.0 - kEpsilon};
}

// One row of a loss: `x` prediction, `y` its label (null for sparse), `label` the class (sparse). Writes
// `grad` (when not null) scaled by `weight` and returns the loss.
struct RowArguments {
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
  const double mass = sum_floats(a.y, a.classes);
  const double loss = mass * (std::log(sum) + static_cast<double>(shift)) - dot_floats(a.y, a.x, a.classes);
  if (a.grad != nullptr) {
    const double scale = mass * a.weight / sum;
    for (int64_t c = 0; c < a.classes; ++c) {
      a.grad[c] =
          static_cast<float>(scale * static_cast<double>(a.grad[c]) - a.weight * static_cast<double>(a.y[c]));
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
    const double y = static_cast<double>(a.y[c]);
    const auto q = clip(static_cast<double>(a.x[c]) / sum);
    loss -= y * std::log(q.value);
    if (q.inside) flow -= y;
  }
  if (a.grad == nullptr) return loss;
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto q = clip(static_cast<double>(a.x[c]) / sum);
    const double h = q.inside ? -static_cast<double>(a.y[c]) / q.value : 0.0;
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

double binary_logits(const RowArguments& a) {
  const auto classes = static_cast<double>(a.classes);
  double loss = 0.0;
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto x = static_cast<double>(a.x[c]), y = static_cast<double>(a.y[c]);
    loss += std::max(x, 0.0) - x * y + std::log1p(std::exp(-std::fabs(x)));
    if (a.grad == nullptr) continue;
    a.grad[c] = static_cast<float>((1.0 / (1.0 + std::exp(-x)) - y) / classes * a.weight);
  }
  return loss / classes;
}

double binary_probabilities(const RowArguments& a) {
  const auto classes = static_cast<double>(a.classes);
  double loss = 0.0;
  for (int64_t c = 0; c < a.classes; ++c) {
    const auto y = static_cast<double>(a.y[c]);
    const auto p = clip(static_cast<double>(a.x[c]));
    loss -= y * std::log(p.value + kEpsilon) + (1.0 - y) * std::log(1.0 - p.value + kEpsilon);
    if (a.grad == nullptr) continue;
    const double slope = (1.0 - y) / (1.0 - p.value + kEpsilon) - y / (p.value + kEpsilon);
    a.grad[c] = static_cast<float>(p.inside ? slope / classes * a.weight : 0.0);
  }
  return loss / classes;
}

double mean_squared(const RowArguments& a) {
  const auto classes = static_cast<double>(a.classes);
  double loss = 0.0;
  for (int64_t c = 0; c < a.classes; ++c) {
    const double d = static_cast<double>(a.x[c]) - static_cast<double>(a.y[c]);
    loss += d * d;
    if (a.grad != nullptr) a.grad[c] = static_cast<float>(2.0 * d / classes * a.weight);
  }
  return loss / classes;
}

using RowLoss = double (*)(const RowArguments&);
RowLoss row_loss(const LossSpec& spec) {
  switch (spec.loss) {
    case Loss::kCategoricalCrossentropy:
      return spec.from_logits ? categorical_logits : categorical_probabilities;
    case Loss::kSparseCategoricalCrossentropy:
      return spec.from_logits ? sparse_logits : sparse_probabilities;
    case Loss::kBinaryCrossentropy:
      return spec.from_logits ? binary_logits : binary_probabilities;
    case Loss::kMeanSquaredError:
      break;
  }
  return mean_squared;
}

// Losses work on few numbers (rows times classes) in one thread. Where a row holds several predictions
// (axes between the first and the last), its loss is their mean.
class CpuLoss final : public LossKernel {
 public:
  explicit CpuLoss(const LossSpec& spec)
      : loss_(row_loss(spec)),
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
           const Tensor& grad) override {
    RONDO_CHECK(!grad || on.state != nullptr);
    const double share = 1.0 / static_cast<double>(per_row_);
    RowArguments row{prediction.as<const float>(),
                     sparse_ ? nullptr : label.as<const float>(),
                     0,
                     classes_,
                     grad ? static_cast<double>(on.state->inverse_batch) * share : 0.0,
                     grad.as<float>()};
    double sum = 0.0;
    for (int64_t i = 0; i < positions_; ++i) {
      if (sparse_) {
        row.label = label.as<const int32_t>()[i];
        require(row.label >= 0 && row.label < classes_, "label {} at row {} is outside of 0..{}", row.label,
                i / per_row_, classes_ - 1);
      }
      sum += loss_(row);
      row.x += classes_;
      if (!sparse_) row.y += classes_;
      if (row.grad != nullptr) row.grad += classes_;
    }
    *loss_sum = sum * share;
  }

 private:
  RowLoss loss_;
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
      : metric_(spec.metric),
        threshold_(spec.from_logits ? 0.0f : 0.5f),
        classes_(spec.prediction.shape[spec.prediction.shape.rank() - 1]),
        positions_(spec.prediction.elements() / classes_),
        per_row_(positions_ / spec.prediction.shape[0]) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution&, const Tensor& prediction, const Tensor& label, double* sum) override {
    double total = 0.0;
    const auto* x = prediction.as<const float>();
    for (int64_t i = 0; i < positions_; ++i, x += classes_) {
      if (metric_ == Metric::kSparseCategoricalAccuracy) {
        total += first_maximum(x, classes_) == label.as<const int32_t>()[i] ? 1.0 : 0.0;
      } else {
        total += row(x, label.as<const float>() + i * classes_);
      }
    }
    *sum = total / static_cast<double>(per_row_);
  }

 private:
  double row(const float* x, const float* y) const {
    if (metric_ == Metric::kCategoricalAccuracy) {
      return first_maximum(x, classes_) == first_maximum(y, classes_) ? 1.0 : 0.0;
    }
    double total = 0.0;
    for (int64_t c = 0; c < classes_; ++c) {
      const double d = static_cast<double>(x[c]) - static_cast<double>(y[c]);
      if (metric_ == Metric::kBinaryAccuracy) {
        total += y[c] == (x[c] > threshold_ ? 1.0f : 0.0f) ? 1.0 : 0.0;
      } else {
        total += metric_ == Metric::kMeanSquaredError ? d * d : std::fabs(d);
      }
    }
    return total / static_cast<double>(classes_);
  }

  Metric metric_;
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
  return std::make_unique<CpuLoss>(spec);
}

std::unique_ptr<MetricKernel> make_metric(ContextPtr, const MetricSpec& spec) {
  check_prediction(spec.prediction, "a metric");
  return std::make_unique<CpuMetric>(spec);
}

}  // namespace rondo::cpu
