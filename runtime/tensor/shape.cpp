#include "runtime/tensor/shape.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace rondo {

Shape::Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  require(rank_ <= kMaxRank, "a shape has at most {} axes, got {}", kMaxRank, extents.size());
  for (const int64_t extent : extents) require(extent >= 0, "a shape cannot have the extent {}", extent);
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t extent : extents()) product *= extent;
  return product;
}

Shape Shape::with_batch(int64_t batch) const {
  RONDO_CHECK(rank_ >= 1);
  Shape result = *this;
  result.extents_[0] = batch;
  return result;
}

Shape Shape::batched(int64_t batch) const {
  std::array<int64_t, kMaxRank + 1> extents{batch};
  std::copy(extents_.begin(), extents_.begin() + rank_, extents.begin() + 1);
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank_) + 1));
}

Shape Shape::sample() const {
  RONDO_CHECK(rank_ >= 1);
  return Shape(extents().subspan(1));
}

std::string Shape::text() const {
  std::string out = "(";
  for (int axis = 0; axis < rank_; ++axis) {
    out += fmt::format("{}{}", axis > 0 ? ", " : "", extents_[static_cast<size_t>(axis)]);
  }
  if (rank_ == 1) out += ",";
  return out + ")";
}

}  // namespace rondo
