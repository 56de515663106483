#include "runtime/comm/host/collective.h"

#include <fmt/core.h>

#include <cstring>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/comm/host/engine.h"
#include "runtime/comm/reduce.h"

namespace rondo {

HostCollective::HostCollective(HostEngine& engine, const HostGroup& group, std::vector<HostCollective*>& idle)
    : engine_(engine), group_(group), idle_(idle) {
  counts_.reserve(static_cast<size_t>(group.size()));
  block_bytes_.reserve(static_cast<size_t>(group.size()));
  blocks_.reserve(static_cast<size_t>(group.size()));
}

void HostCollective::start(const HostCall& call, int64_t chunk_bytes) {
  call_ = call;
  chunk_bytes_ = chunk_bytes;
  deadline_ = Clock::now() + call.deadline;
  mismatch_.clear();
  counts_.assign(call.counts.begin(), call.counts.end());
  call_.counts = {};
  stage_ = Stage::kAfter;
}

void HostCollective::start_exchange() {
  const auto size = static_cast<size_t>(group_.size());
  const int64_t element = dtype_size(call_.signature.dtype);
  block_bytes_.clear();
  switch (call_.signature.kind) {
    case CollectiveKind::kAllReduce:
      block_bytes_.assign(size, call_.in.bytes());
      break;
    case CollectiveKind::kBroadcast:
      block_bytes_.assign(size, 0);
      block_bytes_[static_cast<size_t>(call_.signature.root)] = call_.in.bytes();
      break;
    case CollectiveKind::kAllGatherV:
    case CollectiveKind::kSplit:
      for (const int64_t count : counts_) block_bytes_.push_back(count * element);
      break;
    case CollectiveKind::kAllReduceGroup:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAllV:
    case CollectiveKind::kGatherV:
    case CollectiveKind::kScatterV:
    case CollectiveKind::kBarrier:
      block_bytes_.assign(size, 0);
      break;
  }
  // The same on every rank that makes the same call.
  const int64_t total = std::accumulate(block_bytes_.begin(), block_bytes_.end(), int64_t{0});
  if (total > Exchange::kMaxBlocks) block_bytes_.clear();
  exchange_.start(group_, call_.signature, block_bytes_, call_.in.data);
  stage_ = Stage::kExchange;
}

void HostCollective::finish_exchange() {
  if (exchange_.consensus().differs()) {
    mismatch_ = exchange_.consensus().message(group_.topology);
    stage_ = Stage::kFailed;
  } else if (small()) {
    finish_small();
    stage_ = Stage::kDone;
  } else {
    start_transfer();
    stage_ = Stage::kTransfer;
  }
}

void HostCollective::finish_small() {
  const Signature& call = call_.signature;
  auto* out = static_cast<std::byte*>(call_.out.data);
  if (call.kind == CollectiveKind::kAllReduce && call.count > 0) {
    blocks_.clear();
    for (int r = 0; r < group_.size(); ++r) blocks_.push_back(exchange_.block(r));
    reduce_all(call.dtype, call.op, blocks_, out, call.count);
  } else if (call.kind == CollectiveKind::kBroadcast && call.count > 0 && group_.rank != call.root) {
    std::memcpy(out, exchange_.block(call.root), static_cast<size_t>(call.bytes()));
  } else if (call.kind == CollectiveKind::kAllGatherV || call.kind == CollectiveKind::kSplit) {
    for (int r = 0; r < group_.size(); ++r) {
      const auto bytes = static_cast<size_t>(block_bytes_[static_cast<size_t>(r)]);
      if (bytes > 0) std::memcpy(out, exchange_.block(r), bytes);
      out += bytes;
    }
  }
}

void HostCollective::start_transfer() {
  const Signature& call = call_.signature;
  const int64_t element = dtype_size(call.dtype);
  Pipeline::Buffers buffers{.in = call_.in.data, .out = call_.out.data, .dtype = call.dtype, .op = call.op};
  if (call.kind == CollectiveKind::kAllReduce) {
    pipeline_.plan().plan_all_reduce(group_.rank, group_.size(), call.count, element, chunk_bytes_);
    if (call.op == ReduceOp::kAverage) buffers.divisor = group_.size();
    // A ring of one has no neighbour that would bring anything.
    if (group_.size() == 1 && call_.in.data != call_.out.data) {
      std::memcpy(call_.out.data, call_.in.data, static_cast<size_t>(call.bytes()));
    }
  } else if (call.kind == CollectiveKind::kBroadcast) {
    pipeline_.plan().plan_chain(group_.rank, group_.size(), call.root, call.bytes(), chunk_bytes_);
  } else {
    pipeline_.plan().plan_all_gather(group_.rank, group_.size(), counts_, element, chunk_bytes_);
    const int64_t before = std::accumulate(counts_.begin(), counts_.begin() + group_.rank, int64_t{0});
    std::byte* own = static_cast<std::byte*>(call_.out.data) + before * element;
    if (call_.in.count > 0 && own != call_.in.data) {
      std::memcpy(own, call_.in.data, static_cast<size_t>(call_.in.bytes()));
    }
  }
  pipeline_.start(group_, make_tag(group_.context, call.sequence, kTransferPhase), chunk_bytes_, buffers);
}

bool HostCollective::advance() {
  bool moved = false;
  if (stage_ == Stage::kAfter && (call_.after == nullptr || call_.after->happened())) {
    start_exchange();
    moved = true;
  }
  if (stage_ == Stage::kExchange) {
    moved = exchange_.advance() || moved;
    if (exchange_.done()) finish_exchange();
  }
  if (stage_ == Stage::kTransfer) {
    moved = pipeline_.advance() || moved;
    if (pipeline_.done()) stage_ = Stage::kDone;
  }
  return moved;
}

std::string HostCollective::overdue_text() const {
  const Signature& call = call_.signature;
  std::string text = fmt::format("{} of {} bytes was not done within {} ms", call_name(call), call.bytes(),
                                 call_.deadline.count());
  switch (stage_) {
    case Stage::kAfter:
      return text + ": its input was not ready";
    case Stage::kExchange:
      return text +
             fmt::format(": waited for {} to call it", rank_name(group_.topology, exchange_.waiting_for()));
    case Stage::kTransfer:
      return text + fmt::format(": waited for {} after {} bytes",
                                rank_name(group_.topology, pipeline_.waiting_for()),
                                pipeline_.bytes_received());
    case Stage::kIdle:
    case Stage::kDone:
    case Stage::kFailed:
      break;
  }
  return text;
}

void HostCollective::fail() {
  if (over()) return;
  if (stage_ == Stage::kExchange) memory_lost_ = !exchange_.abandon();
  if (stage_ == Stage::kTransfer) memory_lost_ = !pipeline_.abandon();
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
