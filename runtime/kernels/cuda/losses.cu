// Losses and metrics: one team for each position, a row of classes.
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/cuda/loss_loops.h"
#include "runtime/kernels/cuda/row_sums.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

using loss::clip;
using loss::Clipped;

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);

// The losses of runtime/kernels/loss.h, one position (a row of classes) for each team: the same formulas as
// the host's, whose comments derive them.
struct RowLoss {
  LossArguments a;

  RONDO_DEVICE void operator()(int64_t position, const Team& team) const {
    const float* x = a.prediction + position * a.classes;
    const float* y = a.label != nullptr ? a.label + position * a.classes : nullptr;
    float* grad = a.grad != nullptr ? a.grad + position * a.classes : nullptr;
    const double own = a.weights != nullptr ? static_cast<double>(a.weights[position / a.per_weight]) : 1.0;
    const double weight = grad != nullptr
                              ? static_cast<double>(a.state->inverse_batch) * a.share * a.gradient_scale * own
                              : 0.0;
    const double value = of(x, y, position, weight, grad, team);
    // A row of weight 0 is as if it were not there, whatever it holds.
    for (int64_t c = team.rank(); own == 0.0 && grad != nullptr && c < a.classes; c += team.size()) {
      grad[c] = 0.0f;
    }
    if (team.rank() == 0) a.parts[position] = own == 0.0 ? 0.0 : value * own;
  }

 private:
  RONDO_DEVICE double of(const float* x, const float* y, int64_t position, double weight, float* grad,
                         const Team& team) const {
    switch (a.loss) {
      case Loss::kSparseCategoricalCrossentropy: {
        const int64_t label = a.classes_of[position];
        if (label < 0 || label >= a.classes) return out_of_range(grad, team);
        return a.from_logits ? sparse_logits(x, label, weight, grad, team)
                             : sparse_probabilities(x, label, weight, grad, team);
      }
      case Loss::kCategoricalCrossentropy:
        return a.from_logits ? categorical_logits(x, y, weight, grad, team)
                             : categorical_probabilities(x, y, weight, grad, team);
      case Loss::kCategoricalHinge:
        return categorical_hinge(x, y, weight, grad, team);
      case Loss::kCosineSimilarity:
        return cosine(x, y, weight, grad, team);
      default:
        break;
    }
    return loss::with_element(a.loss, a.from_logits, a.delta,
                              [&](const auto& f) { return elements(f, x, y, weight, grad, team); });
  }

  RONDO_DEVICE double out_of_range(float* grad, const Team& team) const {
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) grad[c] = 0.0f;
    return std::nan("");
  }

  RONDO_DEVICE double sparse_logits(const float* x, int64_t label, double weight, float* grad,
                                    const Team& team) const {
    const float shift = row_maximum(x, a.classes, team);
    const double sum = row_exponentials(x, a.classes, shift, team);
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const double p = static_cast<double>(std::exp(x[c] - shift)) / sum;
      grad[c] = static_cast<float>((c == label ? p - 1.0 : p) * weight);
    }
    return std::log(sum) - (static_cast<double>(x[label]) - static_cast<double>(shift));
  }

  RONDO_DEVICE double categorical_logits(const float* x, const float* y, double weight, float* grad,
                                         const Team& team) const {
    const float shift = row_maximum(x, a.classes, team);
    const double sum = row_exponentials(x, a.classes, shift, team);
    double mass = 0.0, dot = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const double l = a.smoothing.of(static_cast<double>(y[c]));
      mass += l;
      dot += l * static_cast<double>(x[c]);
    }
    mass = team.sum(mass);
    dot = team.sum(dot);
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const double p = static_cast<double>(std::exp(x[c] - shift)) / sum;
      grad[c] = static_cast<float>((mass * p - a.smoothing.of(static_cast<double>(y[c]))) * weight);
    }
    return mass * (std::log(sum) + static_cast<double>(shift)) - dot;
  }

  RONDO_DEVICE double categorical_probabilities(const float* x, const float* y, double weight, float* grad,
                                                const Team& team) const {
    double sum = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) sum += static_cast<double>(x[c]);
    sum = team.sum(sum);
    double total = 0.0, flow = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const Clipped q = clip(static_cast<double>(x[c]) / sum);
      const double l = a.smoothing.of(static_cast<double>(y[c]));
      total -= l * std::log(q.value);
      if (q.inside) flow -= l;
    }
    total = team.sum(total);
    flow = team.sum(flow);
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const Clipped q = clip(static_cast<double>(x[c]) / sum);
      const double h = q.inside ? -a.smoothing.of(static_cast<double>(y[c])) / q.value : 0.0;
      grad[c] = static_cast<float>((h - flow) / sum * weight);
    }
    return total;
  }

  RONDO_DEVICE double sparse_probabilities(const float* x, int64_t label, double weight, float* grad,
                                           const Team& team) const {
    double sum = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size())
      sum += clip(static_cast<double>(x[c])).value;
    sum = team.sum(sum);
    const Clipped own = clip(static_cast<double>(x[label]));
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const double slope = 1.0 / sum - (c == label ? 1.0 / own.value : 0.0);
      grad[c] = static_cast<float>(clip(static_cast<double>(x[c])).inside ? slope * weight : 0.0);
    }
    return std::log(sum) - std::log(own.value);
  }

  RONDO_DEVICE double categorical_hinge(const float* x, const float* y, double weight, float* grad,
                                        const Team& team) const {
    double positive = 0.0;
    float most = -HUGE_VALF;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      positive += static_cast<double>(y[c]) * static_cast<double>(x[c]);
      const float other = (1.0f - y[c]) * x[c];
      most = other > most || other != other ? other : most;
    }
    positive = team.sum(positive);
    most = team.max(most);
    double equal = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      if ((1.0f - y[c]) * x[c] == most) equal += 1.0;
    }
    equal = team.sum(equal);
    const double value = static_cast<double>(most) - positive + 1.0;
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const auto l = static_cast<double>(y[c]);
      const double slope = ((1.0f - y[c]) * x[c] == most ? (1.0 - l) / equal : 0.0) - l;
      grad[c] = static_cast<float>(value > 0.0 ? slope * weight : 0.0);
    }
    return loss::at_least(value, 0.0);
  }

  RONDO_DEVICE double cosine(const float* x, const float* y, double weight, float* grad,
                             const Team& team) const {
    constexpr double kLeast = 1e-12;
    double xx = 0.0, yy = 0.0, xy = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const auto p = static_cast<double>(x[c]), l = static_cast<double>(y[c]);
      xx += p * p;
      yy += l * l;
      xy += p * l;
    }
    xx = team.sum(xx);
    yy = team.sum(yy);
    xy = team.sum(xy);
    const double x_norm = std::sqrt(loss::at_least(xx, kLeast)),
                 y_norm = std::sqrt(loss::at_least(yy, kLeast)), similarity = xy / (x_norm * y_norm);
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const double along = xx > kLeast ? similarity * static_cast<double>(x[c]) / x_norm : 0.0;
      grad[c] = static_cast<float>((along - static_cast<double>(y[c]) / y_norm) / x_norm * weight);
    }
    return -similarity;
  }

  template <class F>
  RONDO_DEVICE double elements(const F& f, const float* x, const float* y, double weight, float* grad,
                               const Team& team) const {
    const double share = F::kAverages ? 1.0 / static_cast<double>(a.classes) : 1.0;
    double sum = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const auto p = static_cast<double>(x[c]);
      const double l = a.smoothing.of(static_cast<double>(y[c]));
      sum += f.value(p, l);
      if (grad != nullptr) grad[c] = static_cast<float>(f.slope(p, l) * share * weight);
    }
    return team.sum(sum) * share;
  }
};

// The index of the first maximum.
RONDO_DEVICE inline int64_t first_maximum(const float* x, int64_t count, const Team& team) {
  const float most = row_maximum(x, count, team);
  int64_t at = count;
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    if (x[i] == most && i < at) at = i;
  }
  at = team.min(at);
  return at == count ? 0 : at;  // all NaN
}

RONDO_DEVICE double weight_of(const MetricArguments& a, int64_t position) {
  return a.weights != nullptr ? static_cast<double>(a.weights[position / a.per_weight]) : 1.0;
}

struct RowMetric {
  MetricArguments a;

  RONDO_DEVICE void operator()(int64_t position, const Team& team) const {
    const float* x = a.prediction + position * a.classes;
    const float* y = a.label != nullptr ? a.label + position * a.classes : nullptr;
    const double value = of(x, y, position, team), weight = weight_of(a, position);
    if (team.rank() == 0) a.parts[position] = weight == 0.0 ? 0.0 : value * weight;
  }

 private:
  RONDO_DEVICE double of(const float* x, const float* y, int64_t position, const Team& team) const {
    if (a.metric == Metric::kOnes) return 1.0;
    if (a.metric == Metric::kSparseCategoricalAccuracy) {
      return first_maximum(x, a.classes, team) == a.classes_of[position] ? 1.0 : 0.0;
    }
    if (a.metric == Metric::kCategoricalAccuracy) {
      const int64_t predicted = first_maximum(x, a.classes, team);
      return predicted == first_maximum(y, a.classes, team) ? 1.0 : 0.0;
    }
    if (a.metric == Metric::kSparseTopKCategoricalAccuracy) return among_top(x, a.classes_of[position], team);
    if (a.metric == Metric::kTopKCategoricalAccuracy) {
      return among_top(x, first_maximum(y, a.classes, team), team);
    }
    double total = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const double d = static_cast<double>(x[c]) - static_cast<double>(y[c]);
      if (a.metric == Metric::kBinaryAccuracy) {
        total += y[c] == (x[c] > a.threshold ? 1.0f : 0.0f) ? 1.0 : 0.0;
      } else {
        total += a.metric == Metric::kMeanSquaredError ? d * d : std::fabs(d);
      }
    }
    return team.sum(total) / static_cast<double>(a.classes);
  }

  RONDO_DEVICE double among_top(const float* x, int64_t label, const Team& team) const {
    if (label < 0 || label >= a.classes) return 0.0;
    double more = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      if (x[c] > x[label]) more += 1.0;
      if (!(x[c] - x[c] == 0.0f)) more += static_cast<double>(a.k);  // not finite
    }
    return team.sum(more) < static_cast<double>(a.k) ? 1.0 : 0.0;
  }
};

// Counts of each position, one column for each of the three sums.
struct Confusion {
  MetricArguments a;
  RONDO_DEVICE void operator()(int64_t position, const Team& team) const {
    double counts[3] = {};
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const int64_t i = position * a.classes + c;
      const bool above = a.prediction[i] > a.threshold, positive = a.label[i] != 0.0f;
      if (above || positive) counts[!above ? 2 : positive ? 0 : 1] += 1.0;
    }
    for (int which = 0; which < 3; ++which) {
      const double count = team.sum(counts[which]);
      if (team.rank() == 0) a.parts[which * a.positions + position] = count * weight_of(a, position);
    }
  }
};

// One team for each bucket of the two histograms.
struct Histogram {
  MetricArguments a;
  double* sums;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    const bool positives = task < a.thresholds;
    const int64_t bucket = positives ? task : task - a.thresholds;
    double count = 0.0;
    for (int64_t i = team.rank(); i < a.positions * a.classes; i += team.size()) {
      if ((a.label[i] != 0.0f) == positives && histogram_bucket(a.prediction[i], a.thresholds) == bucket) {
        count += weight_of(a, i / a.classes);
      }
    }
    count = team.sum(count);
    if (team.rank() == 0) sums[task] = count;
  }
};

template <class Arguments>
Access reads_weights(const Arguments& a) {
  return reads(a.weights, a.weights != nullptr ? a.positions / a.per_weight * kFloat : 0);
}

}  // namespace

void loss(cudaStream_t stream, const LossArguments& a, double* sum) {
  const int64_t bytes = a.positions * a.classes * kFloat;
  launch_teams("loss", stream, a.positions, team_for(a.classes),
               {reads(a.prediction, bytes), reads(a.label, a.label != nullptr ? bytes : 0),
                reads(a.classes_of, a.classes_of != nullptr ? a.positions * 4 : 0), reads_weights(a),
                reads(a.state, a.grad != nullptr ? static_cast<int64_t>(sizeof(StepState)) : 0),
                writes(a.grad, a.grad != nullptr ? bytes : 0), writes(a.parts, a.positions * kDouble)},
               RowLoss{a});
  sum_parts(stream, a.parts, a.positions, a.share, sum);
}

void metric(cudaStream_t stream, const MetricArguments& a, double* sums) {
  const int64_t bytes = a.positions * a.classes * kFloat;
  const Access prediction = reads(a.prediction, bytes),
               label = reads(a.label, a.label != nullptr ? bytes : 0);
  if (a.metric == Metric::kHistogram) {
    launch_teams("histogram", stream, 2 * a.thresholds, 256,
                 {prediction, label, reads_weights(a), writes(sums, 2 * a.thresholds * kDouble)},
                 Histogram{a, sums});
    return;
  }
  if (a.metric == Metric::kConfusion) {
    launch_teams("confusion", stream, a.positions, team_for(a.classes),
                 {prediction, label, reads_weights(a), writes(a.parts, 3 * a.positions * kDouble)},
                 Confusion{a});
    for (int which = 0; which < 3; ++which) {
      sum_parts(stream, a.parts + which * a.positions, a.positions, 1.0, sums + which);
    }
    return;
  }
  launch_teams("metric", stream, a.positions, team_for(a.classes),
               {prediction, label, reads(a.classes_of, a.classes_of != nullptr ? a.positions * 4 : 0),
                reads_weights(a), writes(a.parts, a.positions * kDouble)},
               RowMetric{a});
  sum_parts(stream, a.parts, a.positions, a.share, sums);
}

}  // namespace rondo::cuda
