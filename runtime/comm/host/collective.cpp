#include "runtime/comm/host/collective.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/comm/host/bytes.h"
#include "runtime/comm/host/engine.h"
#include "runtime/comm/host/notes.h"
#include "runtime/comm/reduce.h"

namespace rondo {

HostCollective::HostCollective(HostEngine& engine, const HostGroup& group, std::vector<HostCollective*>& idle)
    : engine_(engine), group_(group), idle_(idle) {
  counts_.reserve(static_cast<size_t>(group.size()));
  block_bytes_.reserve(static_cast<size_t>(group.size()));
  blocks_.reserve(static_cast<size_t>(group.size()));
}

void HostCollective::start(const HostCall& call, int64_t chunk_bytes, const CostModel& costs,
                           Hierarchy* hierarchy, SharedGroup* set) {
  call_ = call;
  chunk_bytes_ = chunk_bytes;
  costs_ = &costs;
  hierarchy_ = hierarchy;
  deadline_ = Clock::now() + call.deadline;
  mismatch_.clear();
  counts_.assign(call.counts.begin(), call.counts.end());
  receive_counts_.assign(call.receive_counts.begin(), call.receive_counts.end());
  pairs_.assign(call.pairs.begin(), call.pairs.end());
  call_.counts = call_.receive_counts = {};
  call_.pairs = {};
  stage_ = Stage::kAfter;
  if (set != nullptr) start_inside(*set);
}

Reduction HostCollective::reduction() const {
  const Signature& call = call_.signature;
  return {.dtype = call.dtype,
          .op = call.op,
          .prescale = call.prescale,
          .postscale = call.postscale,
          .divisor = call.op == ReduceOp::kAverage ? group_.size() : 1};
}

// The blocks that ride along when they are short enough; the same on every rank that makes the same call.
void HostCollective::choose_blocks() {
  const Signature& call = call_.signature;
  const auto size = static_cast<size_t>(group_.size());
  block_bytes_.assign(size, 0);
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllReduceGroup:
    case CollectiveKind::kReduceScatter:
      block_bytes_.assign(size, call.bytes());
      break;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatterV:
      block_bytes_[static_cast<size_t>(call.root)] = call.bytes();
      break;
    case CollectiveKind::kAllGatherV:
    case CollectiveKind::kGatherV:
    case CollectiveKind::kSplit:
      for (size_t r = 0; r < size; ++r) block_bytes_[r] = counts_[r] * dtype_size(call.dtype);
      break;
    case CollectiveKind::kAllToAllV:
      block_bytes_.assign(size, sizeof(checksum_));
      break;
    case CollectiveKind::kBarrier:
      break;
  }
  const int64_t total = std::accumulate(block_bytes_.begin(), block_bytes_.end(), int64_t{0});
  const bool fits = total <= Exchange::kMaxBlocks;
  algorithm_ = ReduceAlgorithm::kExchange;
  if (call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kAllReduceGroup) {
    const bool halves = call.dtype == DType::kF16 || call.dtype == DType::kBF16;
    algorithm_ = choose_all_reduce(*costs_, {.ranks = group_.size(),
                                             .hosts = group_.topology.hosts(),
                                             .most_on_a_host = group_.most_on_a_host,
                                             .bytes = call.bytes(),
                                             .exchange_fits = fits,
                                             .hosts_share = hierarchy_ != nullptr,
                                             .rounds_once = halves});
    if (algorithm_ != ReduceAlgorithm::kExchange) block_bytes_.clear();
  } else if (!fits) {
    block_bytes_.clear();
  }
}

void HostCollective::start_exchange() {
  choose_blocks();
  const void* own = call_.in.data;
  if (call_.signature.kind == CollectiveKind::kAllReduceGroup) {
    pack();
    own = staging_.data();
  } else if (call_.signature.kind == CollectiveKind::kAllToAllV) {
    checksum_ = split_checksum();
    own = &checksum_;
  }
  exchange_.start(group_, call_.signature, block_bytes_, own);
  stage_ = Stage::kExchange;
}

void HostCollective::finish_exchange() {
  const bool differs = exchange_.consensus().differs();
  if (!differs && !small() && algorithm_ == ReduceAlgorithm::kHosts) {
    plan_hosts();
    stage_ = Stage::kScatter;
    return;
  }
  pass_turns();
  if (differs) {
    mismatch_ = exchange_.consensus().message(group_.topology);
    stage_ = Stage::kFailed;
  } else if (small()) {
    finish_small();
    stage_ = Stage::kDone;
  } else if (!splits_fit()) {
    start_explaining();
    stage_ = Stage::kExplain;
  } else if (group_.size() == 1) {
    finish_alone();
    stage_ = Stage::kDone;
  } else {
    start_transfer();
    stage_ = Stage::kTransfer;
  }
}

void HostCollective::finish_small() {
  const Signature& call = call_.signature;
  auto* out = static_cast<std::byte*>(call_.out.data);
  const int64_t element = dtype_size(call.dtype);
  const auto own_offset = [&] {
    return std::accumulate(counts_.begin(), counts_.begin() + group_.rank, int64_t{0}) * element;
  };
  const auto reduce_blocks = [&](int64_t offset, void* to, int64_t count) {
    blocks_.clear();
    for (int r = 0; r < group_.size(); ++r) {
      blocks_.push_back(static_cast<const std::byte*>(exchange_.block(r)) + offset);
    }
    reduce(reduction(), blocks_, std::span(&to, 1), count);
  };
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return reduce_blocks(0, out, call.count);
    case CollectiveKind::kAllReduceGroup:
      reduce_blocks(0, staging_.data(), call.count);
      return unpack();
    case CollectiveKind::kReduceScatter:
      return reduce_blocks(own_offset(), out, call_.out.count);
    case CollectiveKind::kBroadcast:
      if (group_.rank != call.root) copy_bytes(out, exchange_.block(call.root), call.bytes());
      return;
    case CollectiveKind::kScatterV:
      return copy_bytes(out, static_cast<const std::byte*>(exchange_.block(call.root)) + own_offset(),
                        call_.out.bytes());
    case CollectiveKind::kGatherV:
      if (group_.rank != call.root) return;
      [[fallthrough]];
    case CollectiveKind::kAllGatherV:
    case CollectiveKind::kSplit:
      for (int r = 0; r < group_.size(); ++r) {
        copy_bytes(out, exchange_.block(r), block_bytes_[static_cast<size_t>(r)]);
        out += block_bytes_[static_cast<size_t>(r)];
      }
      return;
    case CollectiveKind::kAllToAllV:
    case CollectiveKind::kBarrier:
      return;
  }
}

void HostCollective::finish_transfer() {
  if (call_.signature.kind == CollectiveKind::kAllReduceGroup) unpack();
  stage_ = Stage::kDone;
}

// One rank has nobody to send to: its reduction only scales.
void HostCollective::finish_alone() {
  switch (call_.signature.kind) {
    case CollectiveKind::kAllReduceGroup:
      for (const SpanPair& pair : pairs_) {
        reduce(reduction(), std::span(&pair.in.data, 1), std::span(&pair.out.data, 1), pair.in.count);
      }
      return;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      return reduce(reduction(), std::span(&call_.in.data, 1), std::span(&call_.out.data, 1), call_.in.count);
    default:
      return copy_bytes(call_.out.data, call_.in.data, call_.out.bytes());
  }
}

void HostCollective::pack() {
  staging_.resize(std::max(staging_.size(), static_cast<size_t>(call_.signature.bytes())));
  std::byte* to = staging_.data();
  for (const SpanPair& pair : pairs_) {
    copy_bytes(to, pair.in.data, pair.in.bytes());
    to += pair.in.bytes();
  }
}

void HostCollective::unpack() {
  const std::byte* from = staging_.data();
  for (const SpanPair& pair : pairs_) {
    copy_bytes(pair.out.data, from, pair.out.bytes());
    from += pair.out.bytes();
  }
}

bool HostCollective::advance() {
  bool moved = false;
  if (stage_ == Stage::kAfter && (call_.after == nullptr || call_.after->happened())) {
    if (inside_) {
      stage_inside();
    } else {
      start_exchange();
    }
    moved = true;
  }
  if (stage_ == Stage::kInside) moved = advance_inside() || moved;
  if (stage_ == Stage::kExchange) {
    moved = exchange_.advance() || moved;
    if (exchange_.done()) finish_exchange();
  }
  if (stage_ == Stage::kScatter) moved = advance_scatter() || moved;
  if (stage_ == Stage::kTransfer || stage_ == Stage::kAcross || stage_ == Stage::kAcrossSums) {
    moved = pipeline_.advance() || moved;
    if (pipeline_.done()) stage_ == Stage::kTransfer ? finish_transfer() : finish_across();
  }
  if (stage_ == Stage::kGather) moved = advance_gather() || moved;
  if (stage_ == Stage::kExplain) {
    moved = pipeline_.advance() || moved;
    if (pipeline_.done()) finish_explaining();
  }
  return moved;
}

std::string HostCollective::overdue_text(const Notes* notes) const {
  const Signature& call = call_.signature;
  std::string text = fmt::format("{} of {} bytes was not done within {} ms: ", call_name(call), call.bytes(),
                                 call_.deadline.count());
  if (notes == nullptr || stage_ == Stage::kAfter) return text + waited_for();
  const std::string absent = members_who(*notes, Attendance::kNotYet);
  const std::string mute = members_who(*notes, Attendance::kUnknown);
  text += absent.empty() ? waited_for() : fmt::format("waited for {} to call it", absent);
  if (!mute.empty()) text += fmt::format("; no answer from {}", mute);
  return text;
}

std::string HostCollective::members_who(const Notes& notes, Attendance answer) const {
  std::string names;
  for (int r = 0; r < group_.size(); ++r) {
    if (notes.answer_of(group_.world_ranks[static_cast<size_t>(r)]) != answer) continue;
    names += (names.empty() ? "" : ", ") + group_.name_of(r);
  }
  return names;
}

std::string HostCollective::waited_for() const {
  switch (stage_) {
    case Stage::kAfter:
      return "its input was not ready";
    case Stage::kExchange:
      return fmt::format("waited for {} to call it", rank_name(group_.topology, exchange_.waiting_for()));
    case Stage::kTransfer:
    case Stage::kExplain:
      return fmt::format("waited for {} after {} bytes", rank_name(group_.topology, pipeline_.waiting_for()),
                         pipeline_.bytes_received());
    case Stage::kScatter:
    case Stage::kAcross:
    case Stage::kAcrossSums:
    case Stage::kGather:
      return waited_for_in_hierarchy();
    case Stage::kInside:
      return waited_for_inside();
    case Stage::kIdle:
    case Stage::kDone:
    case Stage::kFailed:
      break;
  }
  return "it was done";
}

void HostCollective::fail() {
  if (over()) return;
  if (stage_ == Stage::kExchange) memory_lost_ = !exchange_.abandon();
  const bool across = stage_ == Stage::kAcross || stage_ == Stage::kAcrossSums;
  if (stage_ == Stage::kTransfer || across || stage_ == Stage::kExplain) memory_lost_ = !pipeline_.abandon();
  stage_ = Stage::kFailed;
}

void HostCollective::raise_error() const {
  if (stage_ != Stage::kFailed) return;
  if (!mismatch_.empty()) throw MismatchError(mismatch_);
  throw PeerError(engine_.failure());
}

bool HostCollective::ready() {
  engine_.drive_once();
  const std::lock_guard lock(engine_.lock());
  raise_error();
  return over();
}

void HostCollective::wait() {
  engine_.drive(*this);
  raise_error();
}

void HostCollective::order_before(Stream&) {
  wait();
}

void HostCollective::release() {
  const std::lock_guard lock(engine_.lock());
  stage_ = Stage::kIdle;
  if (!memory_lost_) idle_.push_back(this);
}

}  // namespace rondo
