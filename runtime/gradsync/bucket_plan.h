#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// How gradients are grouped for the all-reduce. A bucket is closed by the tensor that makes it reach its
// size. The first is small, so that communication starts early in the backward pass.
struct BucketOptions {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
};

// Where one parameter lies in its bucket, in float32 elements. Offsets are multiples of 16 (64 bytes).
struct BucketSlot {
  int parameter = 0;  // index into the sizes the plan was made from
  int64_t offset = 0;
  int64_t count = 0;
};

struct Bucket {
  std::vector<BucketSlot> slots;
  int64_t count = 0;  // elements of all slots with their alignment gaps
  int64_t tail = 0;   // further elements that ride along; non-zero in the last bucket only
};

// A pure function of its arguments: the same on every rank and in every run. There is always at least one
// bucket. `counts` are the parameters' sizes in memory elements, in the order in which backward makes their
// gradients final.
std::vector<Bucket> plan_buckets(std::span<const int64_t> counts, int64_t tail, const BucketOptions& options);

// A short text that is equal exactly when two plans are: for start-up agreement.
std::string digest(std::span<const Bucket> plan);

}  // namespace rondo
