// What one rank says it is calling, and the comparison of what all ranks say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"
#include "runtime/comm/communicator.h"

namespace rondo {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllReduceGroup,
  kReduceScatter,
  kBroadcast,
  kAllGatherV,
  kAllToAllV,
  kGatherV,
  kScatterV,
  kBarrier,
  kSplit
};

// The arguments of a collective that must be equal on all ranks. Plain bytes: it travels between processes of
// one build (start-up agreement compares the builds).
struct Signature {
  static constexpr int kLabelBytes = 32;

  int64_t sequence = 0;      // position among the communicator's collectives
  int64_t count = 0;         // elements, of all blocks or pairs together; all_to_all_v: 0, ranks differ in it
  uint64_t counts_hash = 0;  // of the blocks' or pairs' counts, where there are several
  uint64_t label_hash = 0;   // of the whole label
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  uint8_t label_length = 0;
  char label[kLabelBytes] = {};  // the label's beginning, for messages

  void set_label(std::string_view text);
  void set_counts(std::span<const int64_t> counts);  // of blocks: their hash and sum
  std::string_view label_text() const { return {label, label_length}; }
  int64_t bytes() const { return count * dtype_size(dtype); }
};

// Without sequence number; `span` gives count and type.
Signature make_signature(CollectiveKind kind, ConstSpan span, const CollectiveOptions& options);
Signature make_reduction(CollectiveKind kind, ConstSpan span, ReduceOp op, const CollectiveOptions& options);
Signature make_group_signature(std::span<const SpanPair> pairs, ReduceOp op,
                               const CollectiveOptions& options);

bool same_call(const Signature& a, const Signature& b);
// Equal where same_call is true, and otherwise differs, but for a chance of 2^-64.
uint64_t call_key(const Signature& signature);

// `all_reduce #12 "grads/3"`: names one collective in a message.
std::string call_name(const Signature& signature);
// `all_reduce #12 "grads/3" (sum of 1000 float32)`: with its arguments.
std::string describe(const Signature& signature);

uint64_t hash_bytes(const void* data, int64_t bytes);

// What a group of ranks says: the call of its lowest rank, and that of the lowest rank which differs from it.
// Merging is associative, commutative and idempotent, so any pattern of exchanges that reaches everybody
// leaves every rank with the same pair.
struct Consensus {
  Signature base;
  Signature other;
  int32_t base_rank = 0;
  int32_t other_rank = -1;  // -1: no difference seen

  Consensus() = default;
  Consensus(const Signature& signature, int rank) : base(signature), base_rank(rank) {}

  bool differs() const { return other_rank >= 0; }
  void merge(const Consensus& that);
  // The text of the MismatchError, the same on all ranks.
  std::string message(const Topology& topology) const;
};

// A pair of ranks in an all_to_all_v whose counts do not fit.
struct SplitMismatch {
  int from = 0;
  int to = 0;
  int64_t sent = 0;
  int64_t expected = 0;
};
// The text of its MismatchError.
std::string split_mismatch(const Topology& topology, const Signature& call, const SplitMismatch& pair);

}  // namespace rondo
