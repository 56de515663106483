#include "tests/optim/update_oracle.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rondo::test {
namespace {

double norm(const double* x, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

double mix(double old, double fresh, double keep) {
  return keep * old + (1.0 - keep) * fresh;
}

}  // namespace

UpdateOracle::UpdateOracle(OptimizerConfig config, std::vector<SpanLayout> spans)
    : config_(std::move(config)), spans_(std::move(spans)) {
  const auto* adagrad = std::get_if<Adagrad>(&config_);
  for (const SpanLayout& span : spans_) {
    for (const SpanTensor& tensor : span.tensors) {
      const auto count = static_cast<size_t>(tensor.count);
      slots_.push_back({std::vector<double>(count, adagrad ? adagrad->initial_accumulator_value : 0.0),
                        std::vector<double>(count), std::vector<double>(count)});
    }
  }
}

void UpdateOracle::set_weights(const std::vector<std::vector<float>>& weights) {
  weights_.clear();
  for (const auto& span : weights) weights_.emplace_back(span.begin(), span.end());
}

void UpdateOracle::clip(std::vector<Tensor>& tensors) const {
  const Clipping limits = std::visit([](const auto& o) { return o.clip; }, config_);
  double all = 0.0;
  for (Tensor& t : tensors) {
    for (double& g : t.g) {
      if (limits.clipvalue > 0.0) g = std::clamp(g, -limits.clipvalue, limits.clipvalue);
    }
    const double length = norm(t.g.data(), t.g.size());
    for (double& g : t.g) {
      if (limits.clipnorm > 0.0 && length > limits.clipnorm) g *= limits.clipnorm / length;
    }
    all += length * length;
  }
  all = std::sqrt(all);
  if (limits.global_clipnorm == 0.0 || all <= limits.global_clipnorm) return;
  for (Tensor& t : tensors) {
    for (double& g : t.g) g *= limits.global_clipnorm / all;
  }
}

void UpdateOracle::step(const std::vector<std::vector<float>>& gradients) {
  const auto [base, schedule] = std::visit(
      [](const auto& o) { return std::pair<double, Schedule>(o.learning_rate, o.schedule); }, config_);
  const double decay = std::visit(
      [](const auto& o) {
        if constexpr (requires { o.decay; }) return o.decay;
        return 0.0;
      },
      config_);
  const double rate = learning_rate_at(schedule, base, t_) / (1.0 + decay * t_);
  ++t_;
  if (const auto* nadam = std::get_if<Nadam>(&config_)) {
    momenta_ *= nadam->beta_1 * (1.0 - 0.5 * std::pow(0.96, t_ * nadam->schedule_decay));
  }
  std::vector<Tensor> tensors;
  size_t next = 0;
  for (size_t s = 0; s < spans_.size(); ++s) {
    for (const SpanTensor& place : spans_[s].tensors) {
      const auto* g = gradients[s].data() + place.offset;
      const std::vector<std::string> excluded = std::visit(
          [](const auto& o) {
            if constexpr (requires { o.exclude_from_weight_decay; }) return o.exclude_from_weight_decay;
            return std::vector<std::string>{};
          },
          config_);
      auto& slots = slots_[next++];
      tensors.push_back({weights_[s].data() + place.offset, std::vector<double>(g, g + place.count),
                         &slots[0], &slots[1], &slots[2],
                         std::any_of(excluded.begin(), excluded.end(), [&](const std::string& part) {
                           return place.name.find(part) != std::string::npos;
                         })});
    }
  }
  clip(tensors);
  for (Tensor& t : tensors) {
    std::visit([&](const auto& o) { update(o, rate, t); }, config_);
  }
}

void UpdateOracle::update(const SGD& o, double rate, Tensor& t) {
  for (size_t i = 0; i < t.g.size(); ++i) {
    double& v = (*t.a)[i];
    v = o.momentum * v - rate * t.g[i];
    t.w[i] += o.nesterov ? o.momentum * v - rate * t.g[i] : v;
  }
}

void UpdateOracle::update(const RMSprop& o, double rate, Tensor& t) {
  for (size_t i = 0; i < t.g.size(); ++i) {
    double &a = (*t.a)[i], &v = (*t.b)[i], &mean = (*t.c)[i];
    const double g = t.g[i];
    a = mix(a, g * g, o.rho);
    mean = mix(mean, g, o.rho);
    const double spread = o.centered ? a - mean * mean : a;
    if (o.momentum > 0.0) {
      v = o.momentum * v + rate * g / std::sqrt(spread + o.epsilon);
      t.w[i] -= v;
    } else if (o.epsilon_inside) {
      t.w[i] -= rate * g / std::sqrt(spread + o.epsilon);
    } else {
      t.w[i] -= rate * g / (std::sqrt(spread) + o.epsilon);
    }
  }
}

void UpdateOracle::update(const Adagrad& o, double rate, Tensor& t) {
  for (size_t i = 0; i < t.g.size(); ++i) {
    double& a = (*t.a)[i];
    a += t.g[i] * t.g[i];
    t.w[i] -= rate * t.g[i] / (o.epsilon_inside ? std::sqrt(a + o.epsilon) : std::sqrt(a) + o.epsilon);
  }
}

void UpdateOracle::update(const Adadelta& o, double rate, Tensor& t) {
  for (size_t i = 0; i < t.g.size(); ++i) {
    double &a = (*t.a)[i], &d = (*t.b)[i];
    a = mix(a, t.g[i] * t.g[i], o.rho);
    const double u = t.g[i] * std::sqrt((d + o.epsilon) / (a + o.epsilon));
    t.w[i] -= rate * u;
    d = mix(d, u * u, o.rho);
  }
}

void UpdateOracle::update(const Adam& o, double rate, Tensor& t) {
  const double correction = std::sqrt(1.0 - std::pow(o.beta_2, t_)) / (1.0 - std::pow(o.beta_1, t_));
  for (size_t i = 0; i < t.g.size(); ++i) {
    double &m = (*t.a)[i], &v = (*t.b)[i], &most = (*t.c)[i];
    m = mix(m, t.g[i], o.beta_1);
    v = mix(v, t.g[i] * t.g[i], o.beta_2);
    most = std::max(most, v);
    t.w[i] -= rate * correction * m / (std::sqrt(o.amsgrad ? most : v) + o.epsilon);
  }
}

void UpdateOracle::update(const AdamW& o, double rate, Tensor& t) {
  for (size_t i = 0; i < t.g.size() && !t.excluded; ++i) t.w[i] *= 1.0 - rate * o.weight_decay;
  update(Adam{.beta_1 = o.beta_1, .beta_2 = o.beta_2, .epsilon = o.epsilon, .amsgrad = o.amsgrad}, rate, t);
}

void UpdateOracle::update(const Adamax& o, double rate, Tensor& t) {
  for (size_t i = 0; i < t.g.size(); ++i) {
    double &m = (*t.a)[i], &u = (*t.b)[i];
    m = mix(m, t.g[i], o.beta_1);
    u = std::max(o.beta_2 * u, std::abs(t.g[i]));
    t.w[i] -= rate / (1.0 - std::pow(o.beta_1, t_)) * m / (u + o.epsilon);
  }
}

void UpdateOracle::update(const Nadam& o, double rate, Tensor& t) {
  const auto momentum = [&](int at) {
    return o.beta_1 * (1.0 - 0.5 * std::pow(0.96, at * o.schedule_decay));
  };
  const double now = momentum(t_), next = momentum(t_ + 1);
  for (size_t i = 0; i < t.g.size(); ++i) {
    double &m = (*t.a)[i], &v = (*t.b)[i];
    m = mix(m, t.g[i], o.beta_1);
    v = mix(v, t.g[i] * t.g[i], o.beta_2);
    const double ahead = (1.0 - now) * t.g[i] / (1.0 - momenta_) + next * m / (1.0 - momenta_ * next);
    t.w[i] -= rate * ahead / (std::sqrt(v / (1.0 - std::pow(o.beta_2, t_))) + o.epsilon);
  }
}

void UpdateOracle::update(const LARS& o, double rate, Tensor& t) {
  const double w = norm(t.w, t.g.size()), g = norm(t.g.data(), t.g.size());
  const double decay = t.excluded ? 0.0 : o.weight_decay;
  double local = 1.0;
  if (!t.excluded && w > 0.0 && g > 0.0) local = o.trust_coefficient * w / (g + decay * w + o.epsilon);
  for (size_t i = 0; i < t.g.size(); ++i) {
    double& v = (*t.a)[i];
    const double step = rate * local * (t.g[i] + decay * t.w[i]);
    v = o.momentum * v + step;
    t.w[i] -= o.nesterov ? o.momentum * v + step : v;
  }
}

void UpdateOracle::update(const LAMB& o, double rate, Tensor& t) {
  std::vector<double> r(t.g.size());
  for (size_t i = 0; i < t.g.size(); ++i) {
    double &m = (*t.a)[i], &v = (*t.b)[i];
    m = mix(m, t.g[i], o.beta_1);
    v = mix(v, t.g[i] * t.g[i], o.beta_2);
    r[i] = m / (1.0 - std::pow(o.beta_1, t_)) / (std::sqrt(v / (1.0 - std::pow(o.beta_2, t_))) + o.epsilon) +
           (t.excluded ? 0.0 : o.weight_decay) * t.w[i];
  }
  const double w = norm(t.w, r.size()), length = norm(r.data(), r.size());
  const double trust = t.excluded || w == 0.0 || length == 0.0 ? 1.0 : w / length;
  for (size_t i = 0; i < r.size(); ++i) t.w[i] -= rate * trust * r[i];
}

}  // namespace rondo::test
