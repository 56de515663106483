#include "models/graph/initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {
namespace {

enum class Distribution : uint8_t { kConstant, kUniform, kNormal, kTruncated, kOrthogonal };

struct Rule {
  Distribution distribution = Distribution::kConstant;
  double a = 0.0;  // value, low, mean
  double b = 0.0;  // -, high, deviation
};

struct Fans {
  double in = 1.0;
  double out = 1.0;
};

constexpr std::string_view kNames =
    "zeros, ones, glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform, lecun_normal, "
    "random_uniform, random_normal, orthogonal";

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

// Variance scaling: scale and the fan it is divided by.
std::optional<Rule> scaled(std::string_view name, const Shape& shape) {
  const Fans fan = fans(shape);
  double variance = 0.0;
  if (name.starts_with("glorot_")) {
    variance = 2.0 / (fan.in + fan.out);
  } else if (name.starts_with("he_")) {
    variance = 2.0 / fan.in;
  } else if (name.starts_with("lecun_")) {
    variance = 1.0 / fan.in;
  } else {
    return std::nullopt;
  }
  if (name.ends_with("_uniform")) {
    const double limit = std::sqrt(3.0 * variance);
    return Rule{Distribution::kUniform, -limit, limit};
  }
  if (name.ends_with("_normal")) {
    return Rule{Distribution::kTruncated, 0.0, std::sqrt(variance) / kTruncatedDeviation};
  }
  return std::nullopt;
}

std::optional<Rule> find_rule(std::string_view name, double a, double b, const Shape& shape) {
  if (name == "zeros") return Rule{};
  if (name == "ones") return Rule{Distribution::kConstant, 1.0, 0.0};
  if (name == "constant") return Rule{Distribution::kConstant, a, 0.0};
  if (name == "uniform") return Rule{Distribution::kUniform, a, b};
  if (name == "normal") return Rule{Distribution::kNormal, a, b};
  if (name == "random_uniform") return Rule{Distribution::kUniform, -0.05, 0.05};
  if (name == "random_normal") return Rule{Distribution::kNormal, 0.0, 0.05};
  if (name == "orthogonal") return Rule{Distribution::kOrthogonal, 0.0, 1.0};
  return scaled(name, shape);
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
void fill_orthogonal(const Shape& shape, const RandomKey& key, std::span<float> values) {
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
      values[i * static_cast<size_t>(columns) + j] = static_cast<float>(value);
    }
  }
}

void fill_uniform(const Rule& rule, const RandomKey& key, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto words = random_words(key, 0, i / 4);
    for (size_t j = 0; j < 4 && i + j < values.size(); ++j) {
      values[i + j] = static_cast<float>(rule.a + (rule.b - rule.a) * uniform_float(words[j]));
    }
  }
}

}  // namespace

std::array<double, 2> Initializer::numbers() const {
  if (name_ == "random_uniform") return {-0.05, 0.05};
  if (name_ == "random_normal") return {0.0, 0.05};
  return {a_, b_};
}

void Initializer::check(const std::string& where) const {
  require(find_rule(name_, a_, b_, Shape{1, 1}).has_value(),
          "{}: unknown initializer \"{}\"; choose one of {}", where, name_, kNames);
}

void Initializer::fill(const Shape& shape, const RandomKey& key, std::span<float> values) const {
  const auto rule = find_rule(name_, a_, b_, shape);
  require(rule.has_value(), "unknown initializer \"{}\"; choose one of {}", name_, kNames);
  RONDO_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
  switch (rule->distribution) {
    case Distribution::kConstant:
      for (float& value : values) value = static_cast<float>(rule->a);
      return;
    case Distribution::kUniform:
      fill_uniform(*rule, key, values);
      return;
    case Distribution::kOrthogonal:
      fill_orthogonal(shape, key, values);
      return;
    case Distribution::kNormal:
    case Distribution::kTruncated:
      for (size_t i = 0; i < values.size(); ++i) {
        const double normal = draw_normal(key, i, rule->distribution == Distribution::kTruncated);
        values[i] = static_cast<float>(rule->a + rule->b * normal);
      }
      return;
  }
}

}  // namespace rondo
