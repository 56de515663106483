// Constraints on weights: what Keras applies to them behind the optimizer's update of the same step.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/kernel.h"

namespace rondo {

// Norms are taken over `axes` of the weight as Keras shapes it (negative ones count from the end), and
// epsilon is 1e-7:
//   MaxNorm      w clip(norm, 0, high) / (epsilon + norm)
//   NonNeg       w where w >= 0, else 0
//   UnitNorm     w / (epsilon + norm)
//   MinMaxNorm   w (rate clip(norm, low, high) + (1 - rate) norm) / (epsilon + norm)
struct Constraint {
  enum class Kind : uint8_t { kNone, kMaxNorm, kNonNeg, kUnitNorm, kMinMaxNorm };
  Kind kind = Kind::kNone;
  double low = 0.0, high = 1.0, rate = 1.0;
  std::vector<int> axes = {0};

  static Constraint max_norm(double most = 2.0, std::vector<int> axes = {0}) {
    return {Kind::kMaxNorm, 0.0, most, 1.0, std::move(axes)};
  }
  static Constraint non_neg() { return {.kind = Kind::kNonNeg}; }
  static Constraint unit_norm(std::vector<int> axes = {0}) {
    return {Kind::kUnitNorm, 0.0, 1.0, 1.0, std::move(axes)};
  }
  static Constraint min_max_norm(double least = 0.0, double most = 1.0, double rate = 1.0,
                                 std::vector<int> axes = {0}) {
    return {Kind::kMinMaxNorm, least, most, rate, std::move(axes)};
  }
  explicit operator bool() const { return kind != Kind::kNone; }
  bool operator==(const Constraint&) const = default;
};

struct ConstraintSpec {
  Constraint constraint;
  Shape weights;  // as Keras shapes them
};

class ConstraintKernel : public Kernel {
 public:
  // Changes canonical float32 weights in place; norms are summed in float64 in a fixed order. Does nothing in
  // a step whose on.state says skip.
  virtual void run(const Execution& on, const Tensor& weights) = 0;
};

// Throws InvalidArgument for axes that the weights do not have, and for limits that make no sense.
void check(const ConstraintSpec& spec);

}  // namespace rondo
