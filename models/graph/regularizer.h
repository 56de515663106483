#pragma once

namespace rondo {

// Keras' penalty on a weight w, added to the loss: l1 sum |w| + l2 sum w^2. It counts once for each weight,
// however many calls or ranks use it, and is not divided by the batch.
struct Regularizer {
  double l1 = 0.0;
  double l2 = 0.0;
  explicit operator bool() const { return l1 != 0.0 || l2 != 0.0; }
  bool operator==(const Regularizer&) const = default;
};

}  // namespace rondo
