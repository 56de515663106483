// Kernels for the masks of sequences: float32 (rows, positions), 1 for a position that counts and 0 for one
// that does not. All tensors are canonical float32.
#pragma once

#include <cstdint>

#include "runtime/kernels/kernel.h"

namespace rondo {

// Of tensors (rows, positions, features).
struct MaskSpec {
  int64_t rows = 0, positions = 0, features = 1;
};

class MaskKernel : public Kernel {
 public:
  // mask = 1 where any feature of the position differs from `value` (as NaN does), else 0.
  virtual void find(const Execution& on, const Tensor& in, float value, const Tensor& mask) = 0;
  // out = in * mask, by position; `out` may be `in`.
  virtual void scale(const Execution& on, const Tensor& in, const Tensor& mask, const Tensor& out) = 0;
  // shares = mask * positions / (the ones of the row): a mean over all positions of something times its
  // shares is the mean over those that count. NaN in rows where none does.
  virtual void shares(const Execution& on, const Tensor& mask, const Tensor& shares) = 0;
};

// Of attention's scores (rows, heads, queries, keys).
struct ScoreMaskSpec {
  int64_t rows = 0, heads = 0, queries = 0, keys = 0;
};

class ScoreMaskKernel : public Kernel {
 public:
  // out = scores - 1e9 where the query's or the key's position does not count (Keras' number for float32,
  // which is added, so that rows without any key stay finite). Masks are (rows, queries) and (rows, keys); an
  // empty one counts everything. `out` may be `scores`. The gradient passes unchanged.
  virtual void hide(const Execution& on, const Tensor& scores, const Tensor& query_mask,
                    const Tensor& key_mask, const Tensor& out) = 0;
};

// Throw InvalidArgument where a specification makes no sense.
void check(const MaskSpec& spec);
void check(const ScoreMaskSpec& spec);

}  // namespace rondo
