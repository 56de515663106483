#include "models/graph/initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {
namespace {

enum class Distribution : uint8_t { kConstant, kUniform, kNormal, kTruncated, kOrthogonal, kIdentity };

struct Fans {
  double in = 1.0;
  double out = 1.0;
};

constexpr std::string_view kNames =
    "zeros, ones, glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform, lecun_normal, "
    "random_uniform, random_normal, truncated_normal, orthogonal, identity";

// The deviation of a unit normal that is cut off at two deviations.
constexpr double kTruncatedDeviation = .87962566103423978;

Fans fans(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {};
  if (rank == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double receptive = 1.0;
  for (int axis = 0; axis + 2 < rank; ++axis) receptive *= static_cast<double>(shape[axis]);
  return {receptive * static_cast<double>(shape[rank - 2]), receptive * static_cast<double>(shape[rank - 1])};
}

// Two words to one standard normal (Box and Muller); the first is moved off zero.
double standard_normal(uint32_t first, uint32_t second) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(first) + 0.5) * 0x1.0p-32));
  return radius * std::cos(2.0 * std::numbers::pi * static_cast<double>(second) * 0x1.0p-32);
}

double draw_normal(const RandomKey& key, uint64_t element, bool truncated) {
  for (uint64_t attempt = 0;; ++attempt) {
    const auto words = random_words(key, attempt, element);
    for (const double value : {standard_normal(words[0], words[1]), standard_normal(words[2], words[3])}) {
      if (!truncated || std::abs(value) <= 2.0) return value;
    }
  }
}

// Q of a normal matrix' QR decomposition with a positive diagonal in R (Gram and Schmidt, in float64), so
// that it is drawn evenly from all; all axes but the last are rows. Where there are more columns than rows,
// the transpose of such a matrix.
void fill_orthogonal(const Shape& shape, double gain, const RandomKey& key, std::span<float> values) {
  const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const int64_t rows = shape.elements() / std::max<int64_t>(columns, 1);
  const auto length = static_cast<size_t>(std::max(rows, columns));
  const auto count = static_cast<size_t>(std::min(rows, columns));
  std::vector<std::vector<double>> basis(count, std::vector<double>(length));
  for (size_t j = 0; j < count; ++j) {
    std::vector<double>& v = basis[j];
    for (size_t i = 0; i < length; ++i) v[i] = draw_normal(key, i * count + j, false);
    const auto dot = [&](const std::vector<double>& other) {
      double sum = 0.0;
      for (size_t i = 0; i < length; ++i) sum += v[i] * other[i];
      return sum;
    };
    for (int pass = 0; pass < 2; ++pass) {  // the second takes away what rounding left
      for (size_t k = 0; k < j; ++k) {
        const double along = dot(basis[k]);
        for (size_t i = 0; i < length; ++i) v[i] -= along * basis[k][i];
      }
    }
    const double scale = 1.0 / std::sqrt(dot(v));
    for (double& value : v) value *= scale;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<size_t>(r), j = static_cast<size_t>(c);
      const double value = rows >= columns ? basis[j][i] : basis[i][j];
      values[i * static_cast<size_t>(columns) + j] = static_cast<float>(gain * value);
    }
  }
}

void fill_uniform(double low, double high, const RandomKey& key, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto words = random_words(key, 0, i / 4);
    for (size_t j = 0; j < 4 && i + j < values.size(); ++j) {
      values[i + j] = static_cast<float>(low + (high - low) * uniform_float(words[j]));
    }
  }
}

}  // namespace

struct Initializer::Rule {
  Distribution distribution = Distribution::kConstant;
  double a = 0.0;  // value, low, mean, gain
  double b = 0.0;  // -, high, deviation, -
};

// False for names that are none.
bool Initializer::find_rule(const Shape& shape, Rule& rule) const {
  const Fans fan = fans(shape);
  double scale = 1.0, fan_size = fan.in;
  bool uniform = name_.ends_with("_uniform"), truncated = !uniform;
  if (name_ == "zeros" || name_ == "ones" || name_ == "constant") {
    rule = {Distribution::kConstant, name_ == "constant" ? a_ : name_ == "ones" ? 1.0 : 0.0, 0.0};
    return true;
  }
  if (name_ == "uniform" || name_ == "random_uniform") {
    rule = {Distribution::kUniform, numbers()[0], numbers()[1]};
    return true;
  }
  if (name_ == "normal" || name_ == "random_normal") {
    rule = {Distribution::kNormal, numbers()[0], numbers()[1]};
    return true;
  }
  if (name_ == "truncated" || name_ == "truncated_normal") {
    rule = {Distribution::kTruncated, numbers()[0], numbers()[1]};
    return true;
  }
  if (name_ == "orthogonal" || name_ == "scaled_orthogonal") {
    rule = {Distribution::kOrthogonal, name_ == "orthogonal" ? 1.0 : a_, 0.0};
    return true;
  }
  if (name_ == "identity" || name_ == "scaled_identity") {
    rule = {Distribution::kIdentity, name_ == "identity" ? 1.0 : a_, 0.0};
    return true;
  }
  if (name_ == "variance_scaling") {
    const bool known_mode = mode_ == "fan_in" || mode_ == "fan_out" || mode_ == "fan_avg";
    uniform = distribution_ == "uniform";
    truncated = distribution_ == "truncated_normal";
    if (!known_mode || !(a_ > 0.0) || !(uniform || truncated || distribution_ == "untruncated_normal"))
      return false;
    scale = a_;
    if (mode_ != "fan_in") fan_size = mode_ == "fan_out" ? fan.out : (fan.in + fan.out) / 2.0;
  } else if (name_ == "glorot_uniform" || name_ == "glorot_normal") {
    fan_size = (fan.in + fan.out) / 2.0;
  } else if (name_ == "he_uniform" || name_ == "he_normal") {
    scale = 2.0;
  } else if (name_ != "lecun_uniform" && name_ != "lecun_normal") {
    return false;
  }
  const double variance = scale / std::max(fan_size, 1.0);
  if (uniform) {
    const double limit = std::sqrt(3.0 * variance);
    rule = {Distribution::kUniform, -limit, limit};
  } else if (truncated) {
    rule = {Distribution::kTruncated, 0.0, std::sqrt(variance) / kTruncatedDeviation};
  } else {
    rule = {Distribution::kNormal, 0.0, std::sqrt(variance)};
  }
  return true;
}

std::array<double, 2> Initializer::numbers() const {
  if (name_ == "random_uniform") return {-0.05, 0.05};
  if (name_ == "random_normal" || name_ == "truncated_normal") return {0.0, 0.05};
  return {a_, b_};
}

void Initializer::check(const std::string& where) const {
  Rule rule;
  if (name_ == "variance_scaling") {
    require(find_rule(Shape{1, 1}, rule),
            "{}: variance_scaling needs a scale above 0, a mode of fan_in, fan_out or fan_avg, and a "
            "distribution "
            "of uniform, truncated_normal or untruncated_normal; got {}, \"{}\" and \"{}\"",
            where, a_, mode_, distribution_);
  }
  require(find_rule(Shape{1, 1}, rule), "{}: unknown initializer \"{}\"; choose one of {}", where, name_,
          kNames);
}

void Initializer::fill(const Shape& shape, const RandomKey& key, std::span<float> values) const {
  Rule rule;
  require(find_rule(shape, rule), "unknown initializer \"{}\"; choose one of {}", name_, kNames);
  RONDO_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
  switch (rule.distribution) {
    case Distribution::kConstant:
      for (float& value : values) value = static_cast<float>(rule.a);
      return;
    case Distribution::kUniform:
      fill_uniform(rule.a, rule.b, key, values);
      return;
    case Distribution::kOrthogonal:
      fill_orthogonal(shape, rule.a, key, values);
      return;
    case Distribution::kIdentity:
      require(shape.rank() == 2, "the initializer identity is for matrices, got the shape {}", shape.text());
      for (size_t i = 0; i < values.size(); ++i) {
        const auto columns = static_cast<size_t>(shape[1]);
        values[i] = i / columns == i % columns ? static_cast<float>(rule.a) : 0.0f;
      }
      return;
    case Distribution::kNormal:
    case Distribution::kTruncated:
      for (size_t i = 0; i < values.size(); ++i) {
        const double normal = draw_normal(key, i, rule.distribution == Distribution::kTruncated);
        values[i] = static_cast<float>(rule.a + rule.b * normal);
      }
      return;
  }
}

}  // namespace rondo
