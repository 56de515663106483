// The phases of a reduction through a hierarchy.
#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/comm/host/collective.h"
#include "runtime/comm/host/hierarchy.h"

namespace rondo {

void HostCollective::pass_turns() {
  if (hierarchy_ == nullptr) return;
  hierarchy_->scatter_turns.pass(call_.signature.sequence);
  hierarchy_->gather_turns.pass(call_.signature.sequence);
}

void HostCollective::plan_hosts() {
  const Signature& call = call_.signature;
  whole_in_ = call_.in;
  whole_out_ = call_.out;
  if (call.kind == CollectiveKind::kAllReduceGroup) {
    whole_out_ = {staging_.data(), call.count, call.dtype};
    whole_in_ = whole_out_;
  }
  const int64_t size = hierarchy_->scatter->size();
  const int64_t local = hierarchy_->scatter->rank();
  const int64_t each = call.count / size;
  const int64_t longer = call.count % size;  // that many shards have one element more
  shards_.clear();
  for (int64_t r = 0; r < size; ++r) shards_.push_back(each + (r < longer ? 1 : 0));
  const int64_t before = (local * each + std::min(local, longer)) * dtype_size(call.dtype);
  shard_ = {static_cast<std::byte*>(whole_out_.data) + before, shards_[static_cast<size_t>(local)],
            call.dtype};
  if (!scatter_) {
    scatter_.emplace(*hierarchy_->scatter);
    gather_.emplace(*hierarchy_->gather);
  }
  phase_started_ = false;
  halves_ = call.dtype == DType::kF16 || call.dtype == DType::kBF16;
  if (halves_) plan_wide();
}

bool HostCollective::advance_scatter() {
  const Signature& call = call_.signature;
  if (!phase_started_) {
    if (!hierarchy_->scatter_turns.is_turn_of(call.sequence)) return false;
    scatter_->start({.transfer = Transfer::kReduceScatter,
                     .signature = call,
                     .in = whole_in_,
                     .out = shard_,
                     .reduction = {.dtype = shard_.dtype, .op = call.op, .prescale = call.prescale},
                     .in_counts = shards_});
    hierarchy_->scatter_turns.pass(call.sequence);
    phase_started_ = true;
  }
  const bool moved = scatter_->advance();
  if (!scatter_->over()) return moved;
  RONDO_CHECK(!scatter_->differs());  // the exchange has compared all ranks' calls
  phase_started_ = false;
  stage_ = Stage::kAcross;
  if (halves_) {
    start_wide_across();
    return true;
  }
  const HostGroup& across = hierarchy_->across;
  Reduction rest = reduction();
  rest.prescale = 1.0;
  pipeline_.plan().plan_all_reduce(across.rank, across.size(), shard_.count, dtype_size(call.dtype),
                                   chunk_bytes_);
  pipeline_.start(across, make_tag(across.context, call.sequence, kTransferPhase), chunk_bytes_,
                  {.in = shard_.data, .out = shard_.data, .reduction = rest});
  return true;
}

bool HostCollective::advance_gather() {
  const Signature& call = call_.signature;
  if (!phase_started_) {
    if (!hierarchy_->gather_turns.is_turn_of(call.sequence)) return false;
    gather_->start({.transfer = Transfer::kAllGather,
                    .signature = call,
                    .in = shard_,
                    .out = whole_out_,
                    .out_counts = shards_});
    hierarchy_->gather_turns.pass(call.sequence);
    phase_started_ = true;
  }
  const bool moved = gather_->advance();
  if (!gather_->over()) return moved;
  RONDO_CHECK(!gather_->differs());
  finish_transfer();
  return true;
}

std::string HostCollective::waited_for_in_hierarchy() const {
  if (stage_ == Stage::kAcross || stage_ == Stage::kAcrossSums) {
    return fmt::format("waited for {} after {} bytes", hierarchy_->across.name_of(pipeline_.waiting_for()),
                       pipeline_.bytes_received());
  }
  if (!phase_started_) return "an earlier collective had to end first";
  const SharedCollective& phase = stage_ == Stage::kScatter ? *scatter_ : *gather_;
  std::string ranks;
  const int host = group_.topology.host_of[static_cast<size_t>(group_.rank)];
  for (int r = 0, local = 0; r < group_.size(); ++r) {
    if (group_.topology.host_of[static_cast<size_t>(r)] != host || !phase.waits_for(local++)) continue;
    ranks += (ranks.empty() ? "" : ", ") + rank_name(group_.topology, r);
  }
  return ranks.empty() ? "an earlier collective had to end first"
                       : fmt::format("waited for {} to go on", ranks);
}

}  // namespace rondo
