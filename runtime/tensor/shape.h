#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace rondo {

// The logical extents of a tensor, outermost first; images are (batch, height, width, channels). A scalar has
// rank 0 and one element.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span<const int64_t>(extents)) {}
  // Throws InvalidArgument for more than kMaxRank extents or a negative one.
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis)]; }
  int64_t elements() const;
  std::span<const int64_t> extents() const { return {extents_.data(), static_cast<size_t>(rank_)}; }
  // The same shape with another extent on axis 0, and with a new axis 0 in front.
  Shape with_batch(int64_t batch) const;
  Shape batched(int64_t batch) const;
  // The shape behind axis 0.
  Shape sample() const;
  std::string text() const;  // "(28, 28, 1)"

  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace rondo
