// A collective among ranks that share memory, within a world that does not.
#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/comm/host/bytes.h"
#include "runtime/comm/host/collective.h"

namespace rondo {
namespace {

Transfer transfer_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllReduceGroup:
      return Transfer::kAllReduce;
    case CollectiveKind::kReduceScatter:
      return Transfer::kReduceScatter;
    case CollectiveKind::kBroadcast:
      return Transfer::kBroadcast;
    case CollectiveKind::kAllGatherV:
    case CollectiveKind::kSplit:
      return Transfer::kAllGather;
    case CollectiveKind::kAllToAllV:
      return Transfer::kAllToAll;
    case CollectiveKind::kGatherV:
      return Transfer::kGather;
    case CollectiveKind::kScatterV:
      return Transfer::kScatter;
    case CollectiveKind::kBarrier:
      break;
  }
  return Transfer::kBarrier;
}

}  // namespace

// The group keeps the order of the calls, whatever they wait for; so it starts before its event has happened.
void HostCollective::start_inside(SharedGroup& set) {
  const CollectiveKind kind = call_.signature.kind;
  SharedCall call{.transfer = transfer_of(kind),
                  .signature = call_.signature,
                  .in = call_.in,
                  .out = call_.out,
                  .root = call_.signature.root,
                  .reduction = reduction(),
                  .in_counts = counts_,
                  .out_counts = kind == CollectiveKind::kAllToAllV ? receive_counts_ : counts_};
  const bool pairs = kind == CollectiveKind::kAllReduceGroup;
  const bool overwritten = kind == CollectiveKind::kAllToAllV && call_.in.data == call_.out.data;
  if (pairs || overwritten) {
    const int64_t bytes = pairs ? call_.signature.bytes() : call_.in.bytes();
    staging_.resize(std::max(staging_.size(), static_cast<size_t>(bytes)));
    const DType dtype = pairs ? call_.signature.dtype : call_.in.dtype;
    const Span staged{staging_.data(), bytes / dtype_size(dtype), dtype};
    call.in = staged;
    if (pairs) call.out = staged;
  }
  if (!inside_) inside_.emplace(set);
  inside_->start(call);
}

void HostCollective::stage_inside() {
  const CollectiveKind kind = call_.signature.kind;
  if (kind == CollectiveKind::kAllReduceGroup) pack();
  if (kind == CollectiveKind::kAllToAllV && call_.in.data == call_.out.data)
    copy_bytes(staging_.data(), call_.in.data, call_.in.bytes());
  stage_ = Stage::kInside;
}

bool HostCollective::advance_inside() {
  const bool moved = inside_->advance();
  if (!inside_->over()) return moved;
  if (inside_->differs()) {
    mismatch_ = inside_->mismatch(group_.topology);
    stage_ = Stage::kFailed;
  } else {
    finish_transfer();
  }
  return true;
}

std::string HostCollective::waited_for_inside() const {
  std::string ranks;
  for (int r = 0; r < group_.size(); ++r) {
    if (!inside_->waits_for(r)) continue;
    ranks += (ranks.empty() ? "" : ", ") + rank_name(group_.topology, r);
  }
  if (ranks.empty()) return "an earlier collective had to end first";
  return fmt::format("waited for {} to {}", ranks, inside_->everybody_called() ? "go on" : "call it");
}

}  // namespace rondo
