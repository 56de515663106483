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
//   orthogonal                                   orthonormal columns, or rows where there are fewer of them
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

  const std::string& name() const { return name_; }
  // What goes with "constant" (the value), "uniform" and "random_uniform" (low, high), "normal" and
  // "random_normal" (mean, deviation); zeros for the others.
  std::array<double, 2> numbers() const;
  // Throws InvalidArgument that lists the names; `where` says who asked.
  void check(const std::string& where) const;
  // Writes the values of a tensor of this shape in canonical order: a pure function of key and shape.
  void fill(const Shape& shape, const RandomKey& key, std::span<float> values) const;

 private:
  Initializer(std::string name, double a, double b) : name_(std::move(name)), a_(a), b_(b) {}

  std::string name_;
  double a_ = 0.0;
  double b_ = 0.0;
};

}  // namespace rondo
