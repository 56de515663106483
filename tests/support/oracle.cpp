#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/random.h"

namespace rondo::test {
namespace {

int64_t at4(const Shape& s, int64_t a, int64_t b, int64_t c, int64_t d) {
  return ((a * s[1] + b) * s[2] + c) * s[3] + d;
}
int64_t last(const Shape& s) {
  return s[s.rank() - 1];
}

Shape slid(const Shape& in, const Window& w, int64_t channels) {
  int64_t out[2];
  for (int i = 0; i < 2; ++i) {
    const auto a = static_cast<size_t>(i);
    const int64_t reach = (w.size[a] - 1) * w.dilation[a] + 1;
    out[i] = (in[1 + i] + w.padding[2 * a] + w.padding[2 * a + 1] - reach) / w.strides[a] + 1;
  }
  return Shape{in[0], out[0], out[1], channels};
}

// Calls visit(n, oh, ow, kh, kw, ih, iw) for every cell of every window that lies inside the image.
template <class Visit>
void slide(const Shape& in, const Shape& out, const Window& w, const Visit& visit) {
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t oh = 0; oh < out[1]; ++oh) {
      for (int64_t ow = 0; ow < out[2]; ++ow) {
        for (int64_t kh = 0; kh < w.size[0]; ++kh) {
          for (int64_t kw = 0; kw < w.size[1]; ++kw) {
            const int64_t ih = oh * w.strides[0] + kh * w.dilation[0] - w.padding[0];
            const int64_t iw = ow * w.strides[1] + kw * w.dilation[1] - w.padding[2];
            if (ih >= 0 && ih < in[1] && iw >= 0 && iw < in[2]) visit(n, oh, ow, kh, kw, ih, iw);
          }
        }
      }
    }
  }
}

// visit(index in x, index in kernel, index in y) for every product of a convolution.
template <class Visit>
void products(const Shape& x, const Shape& kernel, const Shape& y, const Window& w, const Visit& visit) {
  const int64_t in_group = kernel[2], out_group = kernel[3] / w.groups;
  slide(x, y, w, [&](int64_t n, int64_t oh, int64_t ow, int64_t kh, int64_t kw, int64_t ih, int64_t iw) {
    for (int64_t f = 0; f < kernel[3]; ++f) {
      for (int64_t c = 0; c < in_group; ++c) {
        visit(at4(x, n, ih, iw, f / out_group * in_group + c), at4(kernel, kh, kw, c, f),
              at4(y, n, oh, ow, f));
      }
    }
  });
}

constexpr double kEpsilon = 1e-7;
double clip(double p) {
  return std::clamp(p, kEpsilon, 1.0 - kEpsilon);
}
bool inside(double p) {
  return p >= kEpsilon && p <= 1.0 - kEpsilon;
}

struct Row {
  double loss = 0.0;
  std::vector<double> grad;
};

Row categorical_row(const double* x, const std::vector<double>& y, bool from_logits) {
  const size_t n = y.size();
  Row row{0.0, std::vector<double>(n)};
  double mass = 0.0;
  for (const double value : y) mass += value;
  if (from_logits) {
    const double top = *std::max_element(x, x + n);
    double sum = 0.0;
    for (size_t c = 0; c < n; ++c) sum += std::exp(x[c] - top);
    for (size_t c = 0; c < n; ++c) {
      const double log_p = x[c] - top - std::log(sum);
      row.loss -= y[c] * log_p;
      row.grad[c] = std::exp(log_p) * mass - y[c];
    }
    return row;
  }
  double sum = 0.0, flow = 0.0;
  for (size_t c = 0; c < n; ++c) sum += x[c];
  for (size_t c = 0; c < n; ++c) {
    const double q = x[c] / sum;
    row.loss -= y[c] * std::log(clip(q));
    row.grad[c] = inside(q) ? -y[c] / q : 0.0;
    flow += row.grad[c] * q;
  }
  for (size_t c = 0; c < n; ++c) row.grad[c] = (row.grad[c] - flow) / sum;
  return row;
}

Row sparse_row(const double* x, size_t n, size_t label, bool from_logits) {
  std::vector<double> y(n, 0.0);
  y[label] = 1.0;
  if (from_logits) return categorical_row(x, y, true);
  std::vector<double> logits(n);
  for (size_t c = 0; c < n; ++c) logits[c] = std::log(clip(x[c]));
  Row row = categorical_row(logits.data(), y, true);
  for (size_t c = 0; c < n; ++c) row.grad[c] = inside(x[c]) ? row.grad[c] / x[c] : 0.0;
  return row;
}

Row elementwise_row(const double* x, const std::vector<double>& y, Loss kind, bool from_logits) {
  const size_t n = y.size();
  const auto count = static_cast<double>(n);
  Row row{0.0, std::vector<double>(n)};
  for (size_t c = 0; c < n; ++c) {
    if (kind == Loss::kMeanSquaredError) {
      row.loss += (x[c] - y[c]) * (x[c] - y[c]) / count;
      row.grad[c] = 2.0 * (x[c] - y[c]) / count;
    } else if (from_logits) {
      const double p = 1.0 / (1.0 + std::exp(-x[c]));
      row.loss -= (y[c] * std::log(p) + (1.0 - y[c]) * std::log(1.0 - p)) / count;
      row.grad[c] = (p - y[c]) / count;
    } else {
      const double p = clip(x[c]);
      row.loss -= (y[c] * std::log(p + kEpsilon) + (1.0 - y[c]) * std::log(1.0 - p + kEpsilon)) / count;
      row.grad[c] =
          inside(x[c]) ? ((1.0 - y[c]) / (1.0 - p + kEpsilon) - y[c] / (p + kEpsilon)) / count : 0.0;
    }
  }
  return row;
}

// Loss and gradient of one position, weighted by 1 / positions per row.
template <class Take>
void each_position(const Array& prediction, const Array& label, Loss kind, bool from_logits,
                   const Take& take) {
  const int64_t classes = last(prediction.shape);
  const int64_t positions = prediction.size() / classes;
  const double share = static_cast<double>(prediction.shape[0]) / static_cast<double>(positions);
  for (int64_t i = 0; i < positions; ++i) {
    const double* x = prediction.values.data() + i * classes;
    if (kind == Loss::kSparseCategoricalCrossentropy) {
      take(i * classes, share,
           sparse_row(x, static_cast<size_t>(classes), static_cast<size_t>(label[i]), from_logits));
      continue;
    }
    const std::vector<double> y(label.values.begin() + i * classes, label.values.begin() + (i + 1) * classes);
    take(i * classes, share,
         kind == Loss::kCategoricalCrossentropy ? categorical_row(x, y, from_logits)
                                                : elementwise_row(x, y, kind, from_logits));
  }
}

}  // namespace

Array random_array(const Shape& shape, uint64_t seed) {
  Array array(shape);
  const RandomKey key{seed, RandomPurpose::kSynthetic, 0};
  for (int64_t i = 0; i < array.size(); ++i) {
    const auto words = random_words(key, 0, static_cast<uint64_t>(i));
    array[i] = static_cast<double>(uniform_float(words[0])) * 2.0 - 1.0;
  }
  return array;
}

Window window_of(const Conv2DSpec& spec) {
  return {spec.kernel_size, spec.strides, spec.dilation, spec.padding, spec.groups};
}
Window window_of(const Pool2DSpec& spec) {
  return {.size = spec.pool_size, .strides = spec.strides, .padding = spec.padding};
}

Array conv2d(const Array& x, const Array& kernel, const Array& bias, const Window& window) {
  Array y(slid(x.shape, window, kernel.shape[3]));
  if (bias.size() > 0) {
    for (int64_t i = 0; i < y.size(); ++i) y[i] = bias[i % bias.size()];
  }
  products(x.shape, kernel.shape, y.shape, window,
           [&](int64_t i, int64_t k, int64_t o) { y[o] += x[i] * kernel[k]; });
  return y;
}

LinearGradients conv2d_gradients(const Array& x, const Array& kernel, const Array& dy, const Window& window) {
  LinearGradients grads{Array(x.shape), Array(kernel.shape), Array(Shape{kernel.shape[3]})};
  products(x.shape, kernel.shape, dy.shape, window, [&](int64_t i, int64_t k, int64_t o) {
    grads.x[i] += dy[o] * kernel[k];
    grads.kernel[k] += dy[o] * x[i];
  });
  for (int64_t i = 0; i < dy.size(); ++i) grads.bias[i % kernel.shape[3]] += dy[i];
  return grads;
}

Array dense(const Array& x, const Array& kernel, const Array& bias) {
  const int64_t rows = x.shape[0], features = kernel.shape[0], units = kernel.shape[1];
  Array y(Shape{rows, units});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t u = 0; u < units; ++u) {
      double sum = bias.size() > 0 ? bias[u] : 0.0;
      for (int64_t f = 0; f < features; ++f) sum += x[r * features + f] * kernel[f * units + u];
      y[r * units + u] = sum;
    }
  }
  return y;
}

LinearGradients dense_gradients(const Array& x, const Array& kernel, const Array& dy) {
  const int64_t rows = x.shape[0], features = kernel.shape[0], units = kernel.shape[1];
  LinearGradients grads{Array(x.shape), Array(kernel.shape), Array(Shape{units})};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t u = 0; u < units; ++u) {
      const double d = dy[r * units + u];
      grads.bias[u] += d;
      for (int64_t f = 0; f < features; ++f) {
        grads.x[r * features + f] += d * kernel[f * units + u];
        grads.kernel[f * units + u] += d * x[r * features + f];
      }
    }
  }
  return grads;
}

Array pool2d(const Array& x, Pooling pooling, const Window& window) {
  Array y(slid(x.shape, window, x.shape[3]));
  Array cells(y.shape);
  if (pooling == Pooling::kMax) {
    std::fill(y.values.begin(), y.values.end(), -std::numeric_limits<double>::infinity());
  }
  slide(x.shape, y.shape, window,
        [&](int64_t n, int64_t oh, int64_t ow, int64_t, int64_t, int64_t ih, int64_t iw) {
          for (int64_t c = 0; c < x.shape[3]; ++c) {
            double& out = y[at4(y.shape, n, oh, ow, c)];
            const double in = x[at4(x.shape, n, ih, iw, c)];
            out = pooling == Pooling::kMax ? std::max(out, in) : out + in;
            cells[at4(y.shape, n, oh, ow, c)] += 1.0;
          }
        });
  if (pooling == Pooling::kAverage) {
    for (int64_t i = 0; i < y.size(); ++i) y[i] /= cells[i];
  }
  return y;
}

Array pool2d_gradient(const Array& x, const Array& dy, Pooling pooling, const Window& window) {
  const Array y = pool2d(x, pooling, window);
  Array cells(y.shape), dx(x.shape);
  std::vector<bool> taken(static_cast<size_t>(y.size()), false);  // the first of equal maxima gets it all
  for (const bool counting : {true, false}) {
    slide(x.shape, y.shape, window,
          [&](int64_t n, int64_t oh, int64_t ow, int64_t, int64_t, int64_t ih, int64_t iw) {
            for (int64_t c = 0; c < x.shape[3]; ++c) {
              const int64_t o = at4(y.shape, n, oh, ow, c), i = at4(x.shape, n, ih, iw, c);
              if (counting) {
                cells[o] += 1.0;
              } else if (pooling == Pooling::kAverage) {
                dx[i] += dy[o] / cells[o];
              } else if (x[i] == y[o] && !taken[static_cast<size_t>(o)]) {
                taken[static_cast<size_t>(o)] = true;
                dx[i] += dy[o];
              }
            }
          });
  }
  return dx;
}

namespace {

struct ValueAndSlope {
  double value = 0.0;
  double slope = 1.0;
};

ValueAndSlope activated(double x, const ActivationFunction& f) {
  const double logistic = 1.0 / (1.0 + std::exp(-x)), alpha = static_cast<double>(f.alpha);
  switch (f.kind) {
    case Activation::kLinear:
      return {x, 1.0};
    case Activation::kRelu:
      return {std::max(x, 0.0), x > 0.0 ? 1.0 : 0.0};
    case Activation::kSigmoid:
      return {logistic, logistic * (1.0 - logistic)};
    case Activation::kTanh:
      return {std::tanh(x), 1.0 - std::tanh(x) * std::tanh(x)};
    case Activation::kElu:
      return x > 0.0 ? ValueAndSlope{x, 1.0} : ValueAndSlope{alpha * std::expm1(x), alpha * std::exp(x)};
    case Activation::kSelu: {
      const double scale = 1.0507009873554805, factor = scale * 1.6732632423543772;
      return x > 0.0 ? ValueAndSlope{scale * x, scale}
                     : ValueAndSlope{factor * std::expm1(x), factor * std::exp(x)};
    }
    case Activation::kSoftplus:
      return {std::log1p(std::exp(x)), logistic};
    case Activation::kSoftsign:
      return {x / (1.0 + std::fabs(x)), 1.0 / ((1.0 + std::fabs(x)) * (1.0 + std::fabs(x)))};
    case Activation::kHardSigmoid:
      return {std::clamp(0.2 * x + 0.5, 0.0, 1.0), std::fabs(x) < 2.5 ? 0.2 : 0.0};
    case Activation::kExponential:
      return {std::exp(x), std::exp(x)};
    case Activation::kSwish:
      return {x * logistic, logistic + x * logistic * (1.0 - logistic)};
    case Activation::kGelu: {
      const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
      return {x * below, below + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::acos(-1.0))};
    }
    case Activation::kClippedRelu: {
      const double most = static_cast<double>(f.max_value), least = static_cast<double>(f.threshold);
      if (x >= most) return {most, 0.0};
      return x >= least && x > 0.0 ? ValueAndSlope{x, 1.0} : ValueAndSlope{alpha * (x - least), alpha};
    }
  }
  return {};
}

}  // namespace

Array activation(const Array& x, const ActivationFunction& f) {
  Array y = x;
  for (double& v : y.values) v = activated(v, f).value;
  return y;
}

Array activation_gradient(const Array& x, const Array& dy, const ActivationFunction& f) {
  Array dx = dy;
  for (int64_t i = 0; i < x.size(); ++i) dx[i] *= activated(x[i], f).slope;
  return dx;
}

Array softmax(const Array& x) {
  Array y(x.shape);
  const int64_t n = last(x.shape);
  for (int64_t r = 0; r < x.size(); r += n) {
    double top = x[r], sum = 0.0;
    for (int64_t c = 0; c < n; ++c) top = std::max(top, x[r + c]);
    for (int64_t c = 0; c < n; ++c) sum += std::exp(x[r + c] - top);
    for (int64_t c = 0; c < n; ++c) y[r + c] = std::exp(x[r + c] - top) / sum;
  }
  return y;
}

Array softmax_gradient(const Array& x, const Array& dy) {
  const Array y = softmax(x);
  Array dx(x.shape);
  const int64_t n = last(x.shape);
  for (int64_t r = 0; r < x.size(); r += n) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) dx[r + i] += dy[r + j] * y[r + j] * ((i == j ? 1.0 : 0.0) - y[r + i]);
    }
  }
  return dx;
}

BatchStatistics batch_statistics(const Array& x) {
  const int64_t channels = last(x.shape);
  const auto width = static_cast<size_t>(channels);
  BatchStatistics s{std::vector<double>(width), std::vector<double>(width), x.size() / channels};
  const auto count = static_cast<double>(s.count);
  for (int64_t i = 0; i < x.size(); ++i) s.mean[static_cast<size_t>(i % channels)] += x[i] / count;
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto c = static_cast<size_t>(i % channels);
    s.variance[c] += (x[i] - s.mean[c]) * (x[i] - s.mean[c]) / count;
  }
  return s;
}

Array batch_norm(const Array& x, const BatchStatistics& statistics, const Array& gamma, const Array& beta,
                 double epsilon) {
  const int64_t channels = last(x.shape);
  Array y(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto c = static_cast<size_t>(i % channels);
    const double normal = (x[i] - statistics.mean[c]) / std::sqrt(statistics.variance[c] + epsilon);
    y[i] = normal * (gamma.size() > 0 ? gamma[i % channels] : 1.0) +
           (beta.size() > 0 ? beta[i % channels] : 0.0);
  }
  return y;
}

NormGradients batch_norm_gradients(const Array& x, const Array& gamma, const Array& dy, double epsilon) {
  const int64_t channels = last(x.shape);
  const auto statistics = batch_statistics(x);
  const Array normal = batch_norm(x, statistics, {}, {}, epsilon);
  const auto count = static_cast<double>(statistics.count);
  NormGradients g{Array(x.shape), Array(Shape{channels}), Array(Shape{channels})};
  for (int64_t i = 0; i < x.size(); ++i) {
    g.beta[i % channels] += dy[i];
    g.gamma[i % channels] += dy[i] * normal[i];
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t c = i % channels;
    const double slope = (gamma.size() > 0 ? gamma[c] : 1.0) /
                         std::sqrt(statistics.variance[static_cast<size_t>(c)] + epsilon);
    g.x[i] = slope * (dy[i] - g.beta[c] / count - normal[i] * g.gamma[c] / count);
  }
  return g;
}

double loss(const Array& prediction, const Array& label, Loss kind, bool from_logits) {
  double sum = 0.0;
  each_position(prediction, label, kind, from_logits,
                [&](int64_t, double share, const Row& row) { sum += row.loss * share; });
  return sum;
}

Array loss_gradient(const Array& prediction, const Array& label, Loss kind, bool from_logits) {
  Array grad(prediction.shape);
  each_position(prediction, label, kind, from_logits, [&](int64_t at, double share, const Row& row) {
    for (size_t c = 0; c < row.grad.size(); ++c) grad[at + static_cast<int64_t>(c)] = row.grad[c] * share;
  });
  return grad;
}

double metric(const Array& prediction, const Array& label, Metric kind, bool from_logits) {
  const int64_t classes = last(prediction.shape), positions = prediction.size() / classes;
  const double share = static_cast<double>(prediction.shape[0]) / static_cast<double>(positions);
  const auto first_top = [&](const Array& a, int64_t from) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) best = a[from + c] > a[from + best] ? c : best;
    return best;
  };
  double sum = 0.0;
  for (int64_t i = 0; i < positions; ++i) {
    const int64_t from = i * classes;
    if (kind == Metric::kSparseCategoricalAccuracy) {
      sum += first_top(prediction, from) == static_cast<int64_t>(label[i]) ? share : 0.0;
    } else if (kind == Metric::kCategoricalAccuracy) {
      sum += first_top(prediction, from) == first_top(label, from) ? share : 0.0;
    } else {
      for (int64_t c = from; c < from + classes; ++c) {
        const double d = prediction[c] - label[c],
                     hit = prediction[c] > (from_logits ? 0.0 : 0.5) ? 1.0 : 0.0;
        const double value = kind == Metric::kBinaryAccuracy     ? (label[c] == hit ? 1.0 : 0.0)
                             : kind == Metric::kMeanSquaredError ? d * d
                                                                 : std::fabs(d);
        sum += value * share / static_cast<double>(classes);
      }
    }
  }
  return sum;
}

Array numeric_gradient(const std::function<double(const Array&)>& f, const Array& x, double step) {
  Array moved = x, grad(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    moved[i] = x[i] + step;
    const double above = f(moved);
    moved[i] = x[i] - step;
    grad[i] = (above - f(moved)) / (2.0 * step);
    moved[i] = x[i];
  }
  return grad;
}

double inner(const Array& a, const Array& b) {
  double sum = 0.0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double relative_error(const Array& a, const Array& b, double floor) {
  if (a.shape != b.shape) return std::numeric_limits<double>::infinity();
  double worst = 0.0, largest = floor;
  for (int64_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(b[i]));
    const double difference = std::fabs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst / largest;
}

}  // namespace rondo::test
