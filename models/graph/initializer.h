#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/random.h"
#include "runtime/tensor/shape.h"

namespace rondo {

// How a weight starts, by Keras' names:
//   zeros, ones
//   glorot_uniform, he_uniform, lecun_uniform    U(-l, l), l = sqrt(6 / (in + out)), sqrt(6 / in), sqrt(3 /
//   in) glorot_normal, he_normal, lecun_normal       truncated at two deviations, with the variance 2 / (in +
//   out),
//                                                2 / in, 1 / in after the truncation
//   random_uniform, random_normal                U(-0.05, 0.05), N(0, 0.05^2)
//   truncated_normal                             N(0, 0.05^2), cut off at two deviations
//   orthogonal                                   orthonormal columns, or rows where there are fewer of them
//   identity                                     1 on the diagonal of a matrix, else 0
// `in` and `out` are the rows and columns of a matrix; with more axes, those of the last two axes times the
// extents in front.
class Initializer {
 public:
  // By name; an unknown one is reported by fill() and check().
  Initializer(const char* name) : name_(name) {}
  Initializer(std::string name) : name_(std::move(name)) {}
  static Initializer constant(double value) { return {"constant", value, value}; }
  static Initializer uniform(double low, double high) { return {"uniform", low, high}; }
  static Initializer normal(double mean, double deviation) { return {"normal", mean, deviation}; }
  // Cut off at two deviations.
  static Initializer truncated_normal(double mean, double deviation) {
    return {"truncated", mean, deviation};
  }
  static Initializer orthogonal(double gain) { return {"scaled_orthogonal", gain, 0.0}; }
  static Initializer identity(double gain) { return {"scaled_identity", gain, 0.0}; }
  // The variance `scale` / n, where n is "fan_in", "fan_out" or their mean, "fan_avg"; drawn "uniform",
  // "truncated_normal" (which has that variance behind the truncation) or "untruncated_normal".
  static Initializer variance_scaling(double scale, std::string mode, std::string distribution) {
    Initializer initializer{"variance_scaling", scale, 0.0};
    initializer.mode_ = std::move(mode);
    initializer.distribution_ = std::move(distribution);
    return initializer;
  }

  const std::string& name() const { return name_; }
  // Of "variance_scaling".
  const std::string& mode() const { return mode_; }
  const std::string& distribution() const { return distribution_; }
  // What goes with "constant" (the value), "uniform" and "random_uniform" (low, high), "normal" and
  // "random_normal", "truncated" and "truncated_normal" (mean, deviation), "scaled_orthogonal" and
  // "scaled_identity" (gain), "variance_scaling" (scale); zeros for the others.
  std::array<double, 2> numbers() const;
  // Throws InvalidArgument that lists the names; `where` says who asked.
  void check(const std::string& where) const;
  // Writes the values of a tensor of this shape in canonical order: a pure function of key and shape.
  void fill(const Shape& shape, const RandomKey& key, std::span<float> values) const;

 private:
  struct Rule;
  Initializer(std::string name, double a, double b) : name_(std::move(name)), a_(a), b_(b) {}
  bool find_rule(const Shape& shape, Rule& rule) const;

  std::string name_;
  std::string mode_ = {}, distribution_ = {};
  double a_ = 0.0;
  double b_ = 0.0;
};

}  // namespace rondo
