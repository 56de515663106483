// Softmax, losses, metrics and sums: one team for each row.
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/loss.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);
constexpr float kInfinity = HUGE_VALF;

struct SumParts {
  const double* parts;
  int64_t count;
  double scale;
  double* out;
  RONDO_DEVICE void operator()(int64_t, const Team& team) const {
    double sum = 0.0;
    for (int64_t i = team.rank(); i < count; i += team.size()) sum += parts[i];
    sum = team.sum(sum);
    if (team.rank() == 0) *out = sum * scale;
  }
};

struct SquareParts {
  const float* values;
  int64_t count, part;
  double* parts;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    const int64_t begin = task * part, end = begin + part < count ? begin + part : count;
    double sum = 0.0;
    for (int64_t i = begin + team.rank(); i < end; i += team.size()) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    sum = team.sum(sum);
    if (team.rank() == 0) parts[task] = sum;
  }
};

RONDO_DEVICE inline float row_maximum(const float* x, int64_t count, const Team& team) {
  float most = -kInfinity;
  for (int64_t i = team.rank(); i < count; i += team.size()) most = x[i] > most ? x[i] : most;
  return team.max(most);
}
RONDO_DEVICE inline double row_exponentials(const float* x, int64_t count, float shift, const Team& team) {
  double sum = 0.0;
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    sum += static_cast<double>(std::exp(x[i] - shift));
  }
  return team.sum(sum);
}

struct Softmax {
  const float* x;
  float* y;
  int64_t classes;
  RONDO_DEVICE void operator()(int64_t row, const Team& team) const {
    const float* in = x + row * classes;
    float* out = y + row * classes;
    const float shift = row_maximum(in, classes, team);
    const double sum = row_exponentials(in, classes, shift, team);
    const auto scale = static_cast<float>(1.0 / sum);
    for (int64_t i = team.rank(); i < classes; i += team.size()) out[i] = std::exp(in[i] - shift) * scale;
  }
};

// dx = y (dy - sum(y dy))
struct SoftmaxGradient {
  const float *y, *dy;
  float* dx;
  int64_t classes;
  RONDO_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t at = row * classes;
    double dot = 0.0;
    for (int64_t i = at + team.rank(); i < at + classes; i += team.size()) {
      dot += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    }
    const auto total = static_cast<float>(team.sum(dot));
    for (int64_t i = at + team.rank(); i < at + classes; i += team.size()) dx[i] = y[i] * (dy[i] - total);
  }
};

constexpr double kEpsilon = 1e-7;  // Keras' K.epsilon()

struct Clipped {
  double value;
  bool inside;  // the gradient passes
};
RONDO_DEVICE inline Clipped clip(double p) {
  const double low = p < kEpsilon ? kEpsilon : p;
  return {low > 1.0 - kEpsilon ? 1.0 - kEpsilon : low, p >= kEpsilon && p <= 1.0 - kEpsilon};
}

// The losses of runtime/kernels/loss.h, one position (a row of classes) for each team: the same formulas as
// the host's, whose comments derive them.
struct RowLoss {
  LossArguments a;

  RONDO_DEVICE void operator()(int64_t position, const Team& team) const {
    const float* x = a.prediction + position * a.classes;
    const float* y = a.label != nullptr ? a.label + position * a.classes : nullptr;
    float* grad = a.grad != nullptr ? a.grad + position * a.classes : nullptr;
    const double weight = grad != nullptr ? static_cast<double>(a.state->inverse_batch) * a.share : 0.0;
    const double value = of(x, y, position, weight, grad, team);
    if (team.rank() == 0) a.parts[position] = value;
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
      case Loss::kBinaryCrossentropy:
        return a.from_logits ? binary_logits(x, y, weight, grad, team)
                             : binary_probabilities(x, y, weight, grad, team);
      case Loss::kMeanSquaredError:
        break;
    }
    return squared_error(x, y, weight, grad, team);
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
      mass += static_cast<double>(y[c]);
      dot += static_cast<double>(y[c]) * static_cast<double>(x[c]);
    }
    mass = team.sum(mass);
    dot = team.sum(dot);
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const double p = static_cast<double>(std::exp(x[c] - shift)) / sum;
      grad[c] = static_cast<float>((mass * p - static_cast<double>(y[c])) * weight);
    }
    return mass * (std::log(sum) + static_cast<double>(shift)) - dot;
  }

  RONDO_DEVICE double categorical_probabilities(const float* x, const float* y, double weight, float* grad,
                                                const Team& team) const {
    double sum = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) sum += static_cast<double>(x[c]);
    sum = team.sum(sum);
    double loss = 0.0, flow = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const Clipped q = clip(static_cast<double>(x[c]) / sum);
      loss -= static_cast<double>(y[c]) * std::log(q.value);
      if (q.inside) flow -= static_cast<double>(y[c]);
    }
    loss = team.sum(loss);
    flow = team.sum(flow);
    for (int64_t c = team.rank(); grad != nullptr && c < a.classes; c += team.size()) {
      const Clipped q = clip(static_cast<double>(x[c]) / sum);
      const double h = q.inside ? -static_cast<double>(y[c]) / q.value : 0.0;
      grad[c] = static_cast<float>((h - flow) / sum * weight);
    }
    return loss;
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

  RONDO_DEVICE double binary_logits(const float* x, const float* y, double weight, float* grad,
                                    const Team& team) const {
    const auto classes = static_cast<double>(a.classes);
    double loss = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const auto p = static_cast<double>(x[c]), l = static_cast<double>(y[c]);
      loss += (p > 0.0 ? p : 0.0) - p * l + std::log1p(std::exp(-std::fabs(p)));
      if (grad == nullptr) continue;
      grad[c] = static_cast<float>((1.0 / (1.0 + std::exp(-p)) - l) / classes * weight);
    }
    return team.sum(loss) / classes;
  }

  RONDO_DEVICE double binary_probabilities(const float* x, const float* y, double weight, float* grad,
                                           const Team& team) const {
    const auto classes = static_cast<double>(a.classes);
    double loss = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const auto l = static_cast<double>(y[c]);
      const Clipped p = clip(static_cast<double>(x[c]));
      loss -= l * std::log(p.value + kEpsilon) + (1.0 - l) * std::log(1.0 - p.value + kEpsilon);
      if (grad == nullptr) continue;
      const double slope = (1.0 - l) / (1.0 - p.value + kEpsilon) - l / (p.value + kEpsilon);
      grad[c] = static_cast<float>(p.inside ? slope / classes * weight : 0.0);
    }
    return team.sum(loss) / classes;
  }

  RONDO_DEVICE double squared_error(const float* x, const float* y, double weight, float* grad,
                                    const Team& team) const {
    const auto classes = static_cast<double>(a.classes);
    double loss = 0.0;
    for (int64_t c = team.rank(); c < a.classes; c += team.size()) {
      const double d = static_cast<double>(x[c]) - static_cast<double>(y[c]);
      loss += d * d;
      if (grad != nullptr) grad[c] = static_cast<float>(2.0 * d / classes * weight);
    }
    return team.sum(loss) / classes;
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

struct RowMetric {
  MetricArguments a;

  RONDO_DEVICE void operator()(int64_t position, const Team& team) const {
    const float* x = a.prediction + position * a.classes;
    const float* y = a.label != nullptr ? a.label + position * a.classes : nullptr;
    const double value = of(x, y, position, team);
    if (team.rank() == 0) a.parts[position] = value;
  }

 private:
  RONDO_DEVICE double of(const float* x, const float* y, int64_t position, const Team& team) const {
    if (a.metric == Metric::kSparseCategoricalAccuracy) {
      return first_maximum(x, a.classes, team) == a.classes_of[position] ? 1.0 : 0.0;
    }
    if (a.metric == Metric::kCategoricalAccuracy) {
      const int64_t predicted = first_maximum(x, a.classes, team);
      return predicted == first_maximum(y, a.classes, team) ? 1.0 : 0.0;
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
};

}  // namespace

void sum_parts(cudaStream_t stream, const double* parts, int64_t count, double scale, double* out) {
  launch_teams("sum", stream, 1, team_for(count), {reads(parts, count * kDouble), writes(out, kDouble)},
               SumParts{parts, count, scale, out});
}

void square_sum(cudaStream_t stream, const float* values, int64_t count, double* parts, double* out) {
  const int64_t even = (count + kSquareParts - 1) / kSquareParts;
  const int64_t part = even < 1024 ? 1024 : even;
  const int64_t tasks = (count + part - 1) / part;
  launch_teams("square sums", stream, tasks, 256,
               {reads(values, count * kFloat), writes(parts, tasks * kDouble)},
               SquareParts{values, count, part, parts});
  sum_parts(stream, parts, tasks, 1.0, out);
}

void softmax_forward(cudaStream_t stream, const float* x, float* y, int64_t rows, int64_t classes) {
  const int64_t bytes = rows * classes * kFloat;
  launch_teams("softmax", stream, rows, team_for(classes), {reads(x, bytes), writes(y, bytes)},
               Softmax{x, y, classes});
}

void softmax_backward(cudaStream_t stream, const float* y, const float* dy, float* dx, int64_t rows,
                      int64_t classes) {
  const int64_t bytes = rows * classes * kFloat;
  launch_teams("softmax gradient", stream, rows, team_for(classes),
               {reads(y, bytes), reads(dy, bytes), writes(dx, bytes)}, SoftmaxGradient{y, dy, dx, classes});
}

void loss(cudaStream_t stream, const LossArguments& a, double* sum) {
  const int64_t bytes = a.positions * a.classes * kFloat;
  launch_teams("loss", stream, a.positions, team_for(a.classes),
               {reads(a.prediction, bytes), reads(a.label, a.label != nullptr ? bytes : 0),
                reads(a.classes_of, a.classes_of != nullptr ? a.positions * 4 : 0),
                reads(a.state, a.grad != nullptr ? static_cast<int64_t>(sizeof(StepState)) : 0),
                writes(a.grad, a.grad != nullptr ? bytes : 0), writes(a.parts, a.positions * kDouble)},
               RowLoss{a});
  sum_parts(stream, a.parts, a.positions, a.share, sum);
}

void metric(cudaStream_t stream, const MetricArguments& a, double* sum) {
  const int64_t bytes = a.positions * a.classes * kFloat;
  launch_teams("metric", stream, a.positions, team_for(a.classes),
               {reads(a.prediction, bytes), reads(a.label, a.label != nullptr ? bytes : 0),
                reads(a.classes_of, a.classes_of != nullptr ? a.positions * 4 : 0),
                writes(a.parts, a.positions * kDouble)},
               RowMetric{a});
  sum_parts(stream, a.parts, a.positions, a.share, sum);
}

}  // namespace rondo::cuda
