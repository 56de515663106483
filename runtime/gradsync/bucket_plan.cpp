#include "runtime/gradsync/bucket_plan.h"

#include <fmt/core.h>
#include <xxhash.h>

#include "runtime/base/error.h"

namespace rondo {

namespace {

constexpr int64_t kAlignment = 16;  // elements: a cache line, and the widest vector register

int64_t aligned(int64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const int64_t> counts, int64_t tail,
                                 const BucketOptions& options) {
  require(options.first_bytes > 0 && options.bytes > 0,
          "bucket sizes must be positive, got {} bytes for the first and {} for the others",
          options.first_bytes, options.bytes);
  require(tail >= 0, "the tail of the last bucket cannot have {} elements", tail);
  std::vector<Bucket> plan(1);
  for (size_t i = 0; i < counts.size(); ++i) {
    require(counts[i] >= 0, "a parameter cannot have {} elements", counts[i]);
    const int64_t limit = plan.size() == 1 ? options.first_bytes : options.bytes;
    if (plan.back().count * static_cast<int64_t>(sizeof(float)) >= limit) plan.emplace_back();
    Bucket& bucket = plan.back();
    bucket.slots.push_back({.parameter = static_cast<int>(i), .offset = bucket.count, .count = counts[i]});
    bucket.count += aligned(counts[i]);
  }
  plan.back().tail = tail;
  return plan;
}

std::string digest(std::span<const Bucket> plan) {
  std::vector<int64_t> words;
  int64_t elements = 0;
  for (const Bucket& bucket : plan) {
    words.insert(words.end(), {static_cast<int64_t>(bucket.slots.size()), bucket.count, bucket.tail});
    for (const BucketSlot& slot : bucket.slots) {
      words.insert(words.end(), {slot.parameter, slot.offset, slot.count});
      elements += slot.count;
    }
  }
  const uint64_t hash = XXH3_64bits(words.data(), words.size() * sizeof(int64_t));
  return fmt::format("{} buckets, {} elements, {:016x}", plan.size(), elements, hash);
}

}  // namespace rondo
