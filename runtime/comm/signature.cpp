#include "runtime/comm/signature.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

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
    case CollectiveKind::kAllGatherV:
      return "all_gather_v";
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
  std::memcpy(label, text.data(), label_length);
}

bool same_call(const Signature& a, const Signature& b) {
  return a.sequence == b.sequence && a.kind == b.kind && a.count == b.count && a.dtype == b.dtype &&
         a.op == b.op && a.root == b.root && a.counts_hash == b.counts_hash && a.label_hash == b.label_hash;
}

std::string call_name(const Signature& signature) {
  std::string name = fmt::format("{} #{}", kind_name(signature.kind), signature.sequence);
  if (signature.label_length > 0) name += fmt::format(" \"{}\"", signature.label_text());
  return name;
}

std::string describe(const Signature& signature) {
  const std::string elements = fmt::format("{} {}", signature.count, dtype_name(signature.dtype));
  const std::string call = call_name(signature);
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      return fmt::format("{} ({} of {})", call, op_name(signature.op), elements);
    case CollectiveKind::kBroadcast:
      return fmt::format("{} ({} from rank {})", call, elements, signature.root);
    case CollectiveKind::kAllGatherV:
      return fmt::format("{} ({} in all, counts {:08x})", call, elements,
                         signature.counts_hash & 0xffffffffu);
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

}  // namespace rondo
