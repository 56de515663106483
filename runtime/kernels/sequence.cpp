#include "runtime/kernels/sequence.h"

#include <vector>

#include "runtime/base/error.h"

namespace rondo {

Shape output_shape(const EmbeddingSpec& spec) {
  const Shape& indices = spec.indices.shape;
  require(spec.entries > 0 && spec.width > 0, "embedding: needs entries and a width above 0, got {} and {}",
          spec.entries, spec.width);
  require(indices.rank() >= 1 && indices.rank() < Shape::kMaxRank,
          "embedding: the indices have 1 to {} axes, got {}", Shape::kMaxRank - 1, indices.text());
  // Float32 holds whole numbers up to here exactly.
  require(spec.entries <= int64_t{1} << 24, "embedding: at most 2^24 entries, got {}", spec.entries);
  std::vector<int64_t> extents(indices.extents().begin(), indices.extents().end());
  extents.push_back(spec.width);
  return Shape(extents);
}

void check(const LayerNormSpec& spec) {
  require(spec.input.shape.rank() >= 2, "layer normalization reads (rows, ..., channels), got {}",
          spec.input.shape.text());
  require(spec.epsilon > 0.0f, "layer normalization {}: epsilon must be positive, got {}",
          spec.input.shape.text(), spec.epsilon);
}

void check(const MatmulSpec& spec) {
  require(spec.batch > 0 && spec.rows > 0 && spec.columns > 0 && spec.inner > 0,
          "matmul: extents must be positive, got {} products of ({}, {}) and ({}, {})", spec.batch, spec.rows,
          spec.inner, spec.inner, spec.columns);
}

void check(const GateSpec& spec) {
  require(spec.rows > 0 && spec.units > 0, "recurrent gates: rows and units must be positive, got {} and {}",
          spec.rows, spec.units);
}

}  // namespace rondo
