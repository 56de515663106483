#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/source.h"

namespace rondo {

struct SyntheticOptions {
  int64_t size = 1024;  // samples
  Shape input_shape = {28, 28, 1};
  int64_t classes = 10;
  uint64_t seed = 0;
  float noise = 0.5f;  // share of noise in an input, in [0, 1]; the rest is the pattern of the sample's class
};

// Made-up classification data for benchmarks and trials: each class has a random pattern, a sample is its
// class' pattern mixed with noise, in [0, 1). A sample is a pure function of the options and its index, costs
// about as much as a copy, and a network can learn the classes. Labels are int32 class numbers.
class SyntheticSource : public Source {
 public:
  // Throws InvalidArgument for an option out of its range.
  explicit SyntheticSource(const SyntheticOptions& options);

  std::string name() const override { return "synthetic"; }
  int64_t size() const override { return options_.size; }
  Shape input_shape() const override { return options_.input_shape; }
  Shape label_shape() const override { return {}; }
  DType label_dtype() const override { return DType::kI32; }
  int64_t classes() const override { return options_.classes; }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override;
  uint64_t digest() const override;

 private:
  SyntheticOptions options_;
  // Patterns and noise are windows into these, at offsets drawn for the class and for the sample.
  std::vector<float> pattern_;
  std::vector<float> noise_;
};

}  // namespace rondo
