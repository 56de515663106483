#include "runtime/comm/signature.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

namespace rondo {
namespace {

std::string_view op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMin:
      return "minimum";
    case ReduceOp::kMax:
      return "maximum";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown operation";
}

std::string_view kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllReduceGroup:
      return "all_reduce_group";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGatherV:
      return "all_gather_v";
    case CollectiveKind::kAllToAllV:
      return "all_to_all_v";
    case CollectiveKind::kGatherV:
      return "gather_v";
    case CollectiveKind::kScatterV:
      return "scatter_v";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kSplit:
      return "split";
  }
  return "unknown collective";
}

}  // namespace

uint64_t hash_bytes(const void* data, int64_t bytes) {
  // FNV-1a: the inputs are a few dozen bytes, and a collision only hides a message.
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* p = static_cast<const unsigned char*>(data);
  for (int64_t i = 0; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

void Signature::set_label(std::string_view text) {
  label_hash = text.empty() ? 0 : hash_bytes(text.data(), static_cast<int64_t>(text.size()));
  label_length = static_cast<uint8_t>(std::min<size_t>(text.size(), kLabelBytes));
  if (label_length > 0) std::memcpy(label, text.data(), label_length);  // an empty text may have no memory
}

void Signature::set_counts(std::span<const int64_t> counts) {
  counts_hash = hash_bytes(counts.data(), static_cast<int64_t>(counts.size_bytes()));
  count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Signature make_signature(CollectiveKind kind, ConstSpan span, const CollectiveOptions& options) {
  Signature call;
  call.kind = kind;
  call.count = span.count;
  call.dtype = span.dtype;
  call.set_label(options.label);
  return call;
}

Signature make_reduction(CollectiveKind kind, ConstSpan span, ReduceOp op, const CollectiveOptions& options) {
  Signature call = make_signature(kind, span, options);
  call.op = op;
  call.prescale = options.prescale;
  call.postscale = options.postscale;
  return call;
}

Signature make_group_signature(std::span<const SpanPair> pairs, ReduceOp op,
                               const CollectiveOptions& options) {
  ConstSpan all;
  if (!pairs.empty()) all.dtype = pairs[0].in.dtype;
  uint64_t hash = pairs.size();
  for (const SpanPair& pair : pairs) {
    all.count += pair.in.count;
    const std::array<uint64_t, 2> link{hash, static_cast<uint64_t>(pair.in.count)};
    hash = hash_bytes(link.data(), sizeof(link));
  }
  Signature call = make_reduction(CollectiveKind::kAllReduceGroup, all, op, options);
  call.counts_hash = hash;
  return call;
}

bool same_call(const Signature& a, const Signature& b) {
  return a.sequence == b.sequence && a.kind == b.kind && a.count == b.count && a.dtype == b.dtype &&
         a.op == b.op && a.root == b.root && a.counts_hash == b.counts_hash && a.label_hash == b.label_hash &&
         a.prescale == b.prescale && a.postscale == b.postscale;
}

uint64_t call_key(const Signature& s) {
  const uint64_t words[] = {
      static_cast<uint64_t>(s.sequence),
      static_cast<uint64_t>(s.count),
      s.counts_hash,
      s.label_hash,
      std::bit_cast<uint64_t>(s.prescale),
      std::bit_cast<uint64_t>(s.postscale),
      static_cast<uint64_t>(static_cast<uint32_t>(s.root)) << 32 | static_cast<uint64_t>(s.kind) << 16 |
          static_cast<uint64_t>(s.dtype) << 8 | static_cast<uint64_t>(s.op),
  };
  // Each round is a bijection of the state (an odd factor, a shifted xor), so single differences never
  // cancel.
  uint64_t key = 0x9e3779b97f4a7c15u;
  for (const uint64_t word : words) {
    key = (key ^ word) * 0xff51afd7ed558ccdu;
    key ^= key >> 32;
  }
  return key;
}

std::string call_name(const Signature& signature) {
  std::string name = fmt::format("{} #{}", kind_name(signature.kind), signature.sequence);
  if (signature.label_length > 0) name += fmt::format(" \"{}\"", signature.label_text());
  return name;
}

std::string describe(const Signature& signature) {
  const std::string elements = fmt::format("{} {}", signature.count, dtype_name(signature.dtype));
  const std::string call = call_name(signature);
  const std::string counts = fmt::format("counts {:08x}", signature.counts_hash & 0xffffffffu);
  std::string reduction = fmt::format("{} of {}", op_name(signature.op), elements);
  if (signature.prescale != 1.0) reduction += fmt::format(", prescale {}", signature.prescale);
  if (signature.postscale != 1.0) reduction += fmt::format(", postscale {}", signature.postscale);
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      return fmt::format("{} ({})", call, reduction);
    case CollectiveKind::kAllReduceGroup:
    case CollectiveKind::kReduceScatter:
      return fmt::format("{} ({} in all, {})", call, reduction, counts);
    case CollectiveKind::kBroadcast:
      return fmt::format("{} ({} from rank {})", call, elements, signature.root);
    case CollectiveKind::kAllGatherV:
      return fmt::format("{} ({} in all, {})", call, elements, counts);
    case CollectiveKind::kAllToAllV:
      return fmt::format("{} ({})", call, dtype_name(signature.dtype));
    case CollectiveKind::kGatherV:
      return fmt::format("{} ({} in all to rank {}, {})", call, elements, signature.root, counts);
    case CollectiveKind::kScatterV:
      return fmt::format("{} ({} in all from rank {}, {})", call, elements, signature.root, counts);
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSplit:
      break;
  }
  return call;
}

void Consensus::merge(const Consensus& that) {
  const Consensus& low = that.base_rank < base_rank ? that : *this;
  const Consensus& high = that.base_rank < base_rank ? *this : that;
  Consensus merged(low.base, low.base_rank);
  const auto offer = [&merged](const Signature& signature, int32_t rank) {
    if (rank < 0 || same_call(signature, merged.base)) return;
    if (merged.other_rank >= 0 && merged.other_rank <= rank) return;
    merged.other = signature;
    merged.other_rank = rank;
  };
  offer(low.other, low.other_rank);
  offer(high.base, high.base_rank);
  offer(high.other, high.other_rank);
  *this = merged;
}

std::string Consensus::message(const Topology& topology) const {
  return fmt::format(
      "ranks differ in a collective: {} calls {}, {} calls {}. All ranks of a communicator must make the "
      "same calls "
      "with the same arguments in the same order; nothing was transferred",
      rank_name(topology, base_rank), describe(base), rank_name(topology, other_rank), describe(other));
}

std::string split_mismatch(const Topology& topology, const Signature& call, const SplitMismatch& pair) {
  return fmt::format(
      "ranks differ in a collective: {}: {} sends {} elements to {}, which expects {}. What one rank sends "
      "to "
      "another must be what that one expects; nothing was transferred",
      call_name(call), rank_name(topology, pair.from), pair.sent, rank_name(topology, pair.to),
      pair.expected);
}

}  // namespace rondo
