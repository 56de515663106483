#include "runtime/kernels/mask.h"

#include "runtime/base/error.h"

namespace rondo {

void check(const MaskSpec& spec) {
  require(spec.rows > 0 && spec.positions > 0 && spec.features > 0,
          "mask: rows, positions and features must be positive, got {}, {} and {}", spec.rows, spec.positions,
          spec.features);
}

void check(const ScoreMaskSpec& spec) {
  require(spec.rows > 0 && spec.heads > 0 && spec.queries > 0 && spec.keys > 0,
          "mask of scores: extents must be positive, got ({}, {}, {}, {})", spec.rows, spec.heads,
          spec.queries, spec.keys);
}

}  // namespace rondo
