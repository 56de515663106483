// Optimizer updates of one element, written once and compiled for host loops and for CUDA. Formulas of
// tf.keras 2.10 unless a rule names another source.
//
// The ...Update structs are the settings of a rule. with_rule() turns them into a rule proper:
//
//   constexpr static int kSlots;                              // values kept for each weight, at most 3
//   UpdateRates prepare(const RateInput&) const;              // once for each step
//   void operator()(const UpdateRates&, float g, float& w, float* slots) const;
//
// A rule with kAdapts scales the step of each tensor by norms: it has
//
//   float direction(rates, g, w, slots) const;                // first pass; may change slots, not the weight
//   double factor(rates, double w_norm, double d_norm) const; // of the tensor's weights and directions
//
// and then reads the factor in rates.trust.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/base/functors.h"

namespace rondo {

// v = momentum v - lr g; w += v; Nesterov: w += momentum v - lr g with the new v. Without momentum w -= lr g.
struct SgdUpdate {
  float momentum = 0.0f;
  bool nesterov = false;
};

// a = rho a + (1 - rho) g^2; w -= lr g / (sqrt(a) + epsilon). Centered: a - c^2 in the place of a, with
// c = rho c + (1 - rho) g. With momentum: v = momentum v + lr g / sqrt(a + epsilon); w -= v.
// Slots: a, then v, then c. epsilon_inside (Keras 2.11 and later): sqrt(a + epsilon) in both.
struct RmsPropUpdate {
  float rho = 0.9f;
  float epsilon = 1e-7f;
  float momentum = 0.0f;
  bool centered = false;
  bool epsilon_inside = false;
};

// a += g^2; w -= lr g / (sqrt(a) + epsilon), or / sqrt(a + epsilon).
struct AdagradUpdate {
  float epsilon = 1e-7f;
  bool epsilon_inside = false;
};

// a = rho a + (1 - rho) g^2; u = g sqrt(d + epsilon) / sqrt(a + epsilon); w -= lr u; d = rho d + (1 - rho)
// u^2. Slots: a, d.
struct AdadeltaUpdate {
  float rho = 0.95f;
  float epsilon = 1e-7f;
};

// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) +
// epsilon): epsilon stands outside the bias correction, as in Keras. amsgrad: max(vhat, v) in the place of v;
// slots m, v, vhat. weight_decay > 0: w -= lr weight_decay w before (AdamW of Keras 2.11).
struct AdamUpdate {
  float beta_1 = 0.9f;
  float beta_2 = 0.999f;
  float epsilon = 1e-7f;
  bool amsgrad = false;
  float weight_decay = 0.0f;
};

// m as Adam; u = max(b2 u, |g|); w -= lr / (1 - b1^t) m / (u + epsilon).
struct AdamaxUpdate {
  float beta_1 = 0.9f;
  float beta_2 = 0.999f;
  float epsilon = 1e-7f;
};

// With mu_t = b1 (1 - 0.96^(t schedule_decay) / 2) and P = mu_1 ... mu_t, m and v as Adam:
// w -= lr [(1 - mu_t) g / (1 - P) + mu_{t+1} m / (1 - P mu_{t+1})] / (sqrt(v / (1 - b2^t)) + epsilon).
struct NadamUpdate {
  float beta_1 = 0.9f;
  float beta_2 = 0.999f;
  float epsilon = 1e-7f;
  float schedule_decay = 0.004f;
};

// v = momentum v + lr q (g + weight_decay w); w -= v, where q = trust |w| / (|g| + weight_decay |w| +
// epsilon) of the tensor, 1 where a norm is 0. You et al. 2017, arXiv 1708.03888, algorithm 1.
struct LarsUpdate {
  float momentum = 0.9f;
  bool nesterov = false;
  float weight_decay = 1e-4f;
  float trust = 0.001f;
  float epsilon = 1e-9f;
};

// m and v as Adam; r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) + weight_decay w; w -= lr |w| / |r|
// r, the quotient of the tensor, 1 where a norm is 0. You et al. 2019, arXiv 1904.00962, algorithm 2.
struct LambUpdate {
  float beta_1 = 0.9f;
  float beta_2 = 0.999f;
  float epsilon = 1e-6f;
  float weight_decay = 0.0f;
};

struct RateInput {
  float lr = 0.0f;
  int64_t t = 1;         // number of the update, from 1
  int64_t counted = 1;   // the same, those that were skipped included
  double product = 1.0;  // of Nadam's momenta of updates 1 to `counted`
};

// What a rule's step has in common for all elements.
struct UpdateRates {
  float rate = 0.0f;
  float decay = 0.0f;  // of weights; the caller clears it for tensors without decay
  float trust = 1.0f;  // of the tensor, for rules with kAdapts
  float first = 0.0f;
  float second = 0.0f;
};

// How a gradient enters: cut to [-limit, limit] after `scale`, then scaled by norms.
struct GradientInput {
  float scale = 1.0f;
  float limit = HUGE_VALF;  // infinite where values are not cut
  float factor = 1.0f;
  RONDO_HOST_DEVICE float cut(float g) const {
    const float scaled = g * scale;
    const float low = scaled < -limit ? -limit : scaled;  // keeps NaN
    return low > limit ? limit : low;
  }
  // For norms: what is not finite stays as it is.
  RONDO_HOST_DEVICE float cut_finite(float g) const { return g - g == 0.0f ? cut(g) : g; }
  RONDO_HOST_DEVICE float enter(float g) const { return cut(g) * factor; }
};

namespace update {

RONDO_HOST_DEVICE inline double bias(float beta, int64_t t) {
  return 1.0 - std::pow(static_cast<double>(beta), static_cast<double>(t));
}
RONDO_HOST_DEVICE inline void average(float& a, float beta, float x) {
  a = beta * a + (1.0f - beta) * x;
}
RONDO_HOST_DEVICE inline void average_square(float& a, float beta, float g) {
  a = beta * a + (1.0f - beta) * g * g;
}
RONDO_HOST_DEVICE inline float root(float a, float epsilon, bool inside) {
  return inside ? std::sqrt(a + epsilon) : std::sqrt(a) + epsilon;
}

struct PlainRate {
  static constexpr bool kAdapts = false;
  RONDO_HOST_DEVICE UpdateRates prepare(const RateInput& in) const { return {.rate = in.lr}; }
};

template <bool kMomentum>
struct Sgd : PlainRate {
  static constexpr int kSlots = kMomentum ? 1 : 0;
  SgdUpdate s;
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* v) const {
    if constexpr (kMomentum) {
      v[0] = s.momentum * v[0] - r.rate * g;
      w += s.nesterov ? s.momentum * v[0] - r.rate * g : v[0];
    } else {
      w -= r.rate * g;
    }
  }
};

template <bool kMomentum, bool kCentered>
struct RmsProp : PlainRate {
  static constexpr int kSlots = 1 + (kMomentum ? 1 : 0) + (kCentered ? 1 : 0);
  RmsPropUpdate s;
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* slots) const {
    average_square(slots[0], s.rho, g);
    float a = slots[0];
    if constexpr (kCentered) {
      float& c = slots[kSlots - 1];
      average(c, s.rho, g);
      a -= c * c;
    }
    if constexpr (kMomentum) {
      slots[1] = s.momentum * slots[1] + r.rate * g / std::sqrt(a + s.epsilon);
      w -= slots[1];
    } else {
      w -= r.rate * g / root(a, s.epsilon, s.epsilon_inside);
    }
  }
};

struct Adagrad : PlainRate {
  static constexpr int kSlots = 1;
  AdagradUpdate s;
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* a) const {
    a[0] += g * g;
    w -= r.rate * g / root(a[0], s.epsilon, s.epsilon_inside);
  }
};

struct Adadelta : PlainRate {
  static constexpr int kSlots = 2;
  AdadeltaUpdate s;
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* slots) const {
    average_square(slots[0], s.rho, g);
    const float u = g * std::sqrt(slots[1] + s.epsilon) / std::sqrt(slots[0] + s.epsilon);
    w -= r.rate * u;
    average_square(slots[1], s.rho, u);
  }
};

template <bool kAmsgrad, bool kDecay>
struct Adam {
  static constexpr bool kAdapts = false;
  static constexpr int kSlots = kAmsgrad ? 3 : 2;
  AdamUpdate s;
  RONDO_HOST_DEVICE UpdateRates prepare(const RateInput& in) const {
    const auto rate = static_cast<double>(in.lr);
    return {.rate = static_cast<float>(rate * std::sqrt(bias(s.beta_2, in.t)) / bias(s.beta_1, in.t)),
            .decay = in.lr * s.weight_decay};
  }
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* slots) const {
    if constexpr (kDecay) w -= r.decay * w;
    average(slots[0], s.beta_1, g);
    average_square(slots[1], s.beta_2, g);
    float v = slots[1];
    if constexpr (kAmsgrad) {
      slots[2] = slots[2] < v ? v : slots[2];
      v = slots[2];
    }
    w -= r.rate * slots[0] / (std::sqrt(v) + s.epsilon);
  }
};

struct Adamax {
  static constexpr bool kAdapts = false;
  static constexpr int kSlots = 2;
  AdamaxUpdate s;
  RONDO_HOST_DEVICE UpdateRates prepare(const RateInput& in) const {
    return {.rate = static_cast<float>(static_cast<double>(in.lr) / bias(s.beta_1, in.t))};
  }
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* slots) const {
    average(slots[0], s.beta_1, g);
    const float size = std::fabs(g), kept = s.beta_2 * slots[1];
    slots[1] = kept < size ? size : kept;
    w -= r.rate * slots[0] / (slots[1] + s.epsilon);
  }
};

RONDO_HOST_DEVICE inline double nadam_momentum(const NadamUpdate& s, int64_t t) {
  return static_cast<double>(s.beta_1) *
         (1.0 - 0.5 * std::pow(0.96, static_cast<double>(t) * static_cast<double>(s.schedule_decay)));
}

struct Nadam {
  static constexpr bool kAdapts = false;
  static constexpr int kSlots = 2;
  NadamUpdate s;
  RONDO_HOST_DEVICE UpdateRates prepare(const RateInput& in) const {
    const auto rate = static_cast<double>(in.lr);
    const double now = nadam_momentum(s, in.t), next = nadam_momentum(s, in.t + 1);
    double product = in.product;
    for (int64_t t = in.counted; t > in.t; --t) product /= nadam_momentum(s, t);
    return {.rate = static_cast<float>(1.0 / bias(s.beta_2, in.t)),
            .first = static_cast<float>(rate * (1.0 - now) / (1.0 - product)),
            .second = static_cast<float>(rate * next / (1.0 - product * next))};
  }
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* slots) const {
    average(slots[0], s.beta_1, g);
    average_square(slots[1], s.beta_2, g);
    w -= (r.first * g + r.second * slots[0]) / (std::sqrt(slots[1] * r.rate) + s.epsilon);
  }
};

struct Lars {
  static constexpr bool kAdapts = true;
  static constexpr int kSlots = 1;
  LarsUpdate s;
  RONDO_HOST_DEVICE UpdateRates prepare(const RateInput& in) const {
    return {.rate = in.lr, .decay = s.weight_decay};
  }
  RONDO_HOST_DEVICE float direction(const UpdateRates&, float g, float, float*) const { return g; }
  RONDO_HOST_DEVICE double factor(const UpdateRates& r, double w_norm, double g_norm) const {
    if (w_norm == 0.0 || g_norm == 0.0) return 1.0;
    return static_cast<double>(s.trust) * w_norm /
           (g_norm + static_cast<double>(r.decay) * w_norm + static_cast<double>(s.epsilon));
  }
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float g, float& w, float* v) const {
    const float step = r.rate * r.trust * (g + r.decay * w);
    v[0] = s.momentum * v[0] + step;
    w -= s.nesterov ? s.momentum * v[0] + step : v[0];
  }
};

struct Lamb {
  static constexpr bool kAdapts = true;
  static constexpr int kSlots = 2;
  LambUpdate s;
  RONDO_HOST_DEVICE UpdateRates prepare(const RateInput& in) const {
    return {.rate = in.lr,
            .decay = s.weight_decay,
            .first = static_cast<float>(1.0 / bias(s.beta_1, in.t)),
            .second = static_cast<float>(1.0 / bias(s.beta_2, in.t))};
  }
  RONDO_HOST_DEVICE float direction(const UpdateRates& r, float g, float w, float* slots) const {
    average(slots[0], s.beta_1, g);
    average_square(slots[1], s.beta_2, g);
    return of(r, w, slots);
  }
  RONDO_HOST_DEVICE double factor(const UpdateRates&, double w_norm, double r_norm) const {
    return w_norm == 0.0 || r_norm == 0.0 ? 1.0 : w_norm / r_norm;
  }
  RONDO_HOST_DEVICE void operator()(const UpdateRates& r, float, float& w, float* slots) const {
    w -= r.rate * r.trust * of(r, w, slots);
  }

 private:
  RONDO_HOST_DEVICE float of(const UpdateRates& r, float w, const float* slots) const {
    return slots[0] * r.first / (std::sqrt(slots[1] * r.second) + s.epsilon) + r.decay * w;
  }
};

}  // namespace update

// Calls `go` with the rule of the settings.
template <class Go>
auto with_rule(const SgdUpdate& s, const Go& go) {
  return s.momentum != 0.0f ? go(update::Sgd<true>{{}, s}) : go(update::Sgd<false>{{}, s});
}
template <class Go>
auto with_rule(const RmsPropUpdate& s, const Go& go) {
  if (s.momentum != 0.0f) {
    return s.centered ? go(update::RmsProp<true, true>{{}, s}) : go(update::RmsProp<true, false>{{}, s});
  }
  return s.centered ? go(update::RmsProp<false, true>{{}, s}) : go(update::RmsProp<false, false>{{}, s});
}
template <class Go>
auto with_rule(const AdagradUpdate& s, const Go& go) {
  return go(update::Adagrad{{}, s});
}
template <class Go>
auto with_rule(const AdadeltaUpdate& s, const Go& go) {
  return go(update::Adadelta{{}, s});
}
template <class Go>
auto with_rule(const AdamUpdate& s, const Go& go) {
  if (s.weight_decay != 0.0f) {
    return s.amsgrad ? go(update::Adam<true, true>{s}) : go(update::Adam<false, true>{s});
  }
  return s.amsgrad ? go(update::Adam<true, false>{s}) : go(update::Adam<false, false>{s});
}
template <class Go>
auto with_rule(const AdamaxUpdate& s, const Go& go) {
  return go(update::Adamax{s});
}
template <class Go>
auto with_rule(const NadamUpdate& s, const Go& go) {
  return go(update::Nadam{s});
}
template <class Go>
auto with_rule(const LarsUpdate& s, const Go& go) {
  return go(update::Lars{s});
}
template <class Go>
auto with_rule(const LambUpdate& s, const Go& go) {
  return go(update::Lamb{s});
}

}  // namespace rondo
