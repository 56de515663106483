// The large collectives' second phase: which plan, between which buffers.
#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/comm/host/bytes.h"
#include "runtime/comm/host/collective.h"
#include "runtime/comm/reduce.h"

namespace rondo {
namespace {

std::byte* at(void* data, int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}

int64_t sum_before(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

}  // namespace

void HostCollective::start_transfer() {
  Pipeline::Buffers buffers{.in = call_.in.data, .out = call_.out.data, .reduction = reduction()};
  plan_transfer(buffers);
  pipeline_.start(group_, make_tag(group_.context, call_.signature.sequence, kTransferPhase), chunk_bytes_,
                  buffers);
}

void HostCollective::plan_transfer(Pipeline::Buffers& buffers) {
  const Signature& call = call_.signature;
  const int64_t element = dtype_size(call.dtype);
  ChunkPlan& plan = pipeline_.plan();
  switch (call.kind) {
    case CollectiveKind::kAllReduceGroup:
      buffers.in = buffers.out = staging_.data();
      [[fallthrough]];
    case CollectiveKind::kAllReduce:
      return plan_reduction(buffers);
    case CollectiveKind::kReduceScatter:
      return plan.plan_direct_reduce_scatter(group_.rank, group_.size(), counts_, element, chunk_bytes_);
    case CollectiveKind::kBroadcast:
      return plan.plan_chain(group_.rank, group_.size(), call.root, call.bytes(), chunk_bytes_);
    case CollectiveKind::kAllGatherV:
    case CollectiveKind::kSplit:
      copy_bytes(at(call_.out.data, sum_before(counts_, group_.rank) * element), call_.in.data,
                 call_.in.bytes());
      return plan.plan_all_gather(group_.rank, group_.size(), counts_, element, chunk_bytes_);
    case CollectiveKind::kAllToAllV:
      return plan_all_to_all(buffers);
    case CollectiveKind::kGatherV:
      return plan_gather(buffers);
    case CollectiveKind::kScatterV:
      return plan_scatter(buffers);
    case CollectiveKind::kBarrier:
      return;
  }
}

void HostCollective::plan_reduction(Pipeline::Buffers& buffers) {
  const Signature& call = call_.signature;
  const int64_t element = dtype_size(call.dtype);
  if (algorithm_ == ReduceAlgorithm::kDirect) {
    return pipeline_.plan().plan_direct_all_reduce(group_.rank, group_.size(), call.count, element,
                                                   chunk_bytes_);
  }
  if (call.prescale != 1.0) {
    // Round a ring travels what is scaled already.
    reduce({.dtype = call.dtype, .op = call.op, .prescale = call.prescale}, std::span(&buffers.in, 1),
           std::span(&buffers.out, 1), call.count);
    buffers.in = buffers.out;
    buffers.reduction.prescale = 1.0;
  }
  pipeline_.plan().plan_all_reduce(group_.rank, group_.size(), call.count, element, chunk_bytes_);
}

void HostCollective::plan_all_to_all(Pipeline::Buffers& buffers) {
  const int64_t element = dtype_size(call_.signature.dtype);
  if (buffers.in == buffers.out) {
    staging_.resize(std::max(staging_.size(), static_cast<size_t>(call_.in.bytes())));
    copy_bytes(staging_.data(), buffers.in, call_.in.bytes());
    buffers.in = staging_.data();
  }
  copy_bytes(at(buffers.out, sum_before(receive_counts_, group_.rank) * element),
             static_cast<const std::byte*>(buffers.in) + sum_before(counts_, group_.rank) * element,
             counts_[static_cast<size_t>(group_.rank)] * element);
  pipeline_.plan().plan_pairs(group_.rank, group_.size(), counts_, receive_counts_, element, chunk_bytes_);
}

// Gather and scatter are all-to-all with blocks to or from one rank only.
void HostCollective::plan_gather(const Pipeline::Buffers& buffers) {
  const Signature& call = call_.signature;
  const int64_t element = dtype_size(call.dtype);
  const auto root = static_cast<size_t>(call.root);
  const int64_t own = counts_[static_cast<size_t>(group_.rank)];
  receive_counts_ = counts_;
  if (group_.rank == call.root) {
    copy_bytes(at(buffers.out, sum_before(counts_, group_.rank) * element), call_.in.data, own * element);
    std::fill(counts_.begin(), counts_.end(), 0);
  } else {
    std::fill(receive_counts_.begin(), receive_counts_.end(), 0);
    std::fill(counts_.begin(), counts_.end(), 0);
    counts_[root] = own;
  }
  pipeline_.plan().plan_pairs(group_.rank, group_.size(), counts_, receive_counts_, element, chunk_bytes_);
}

void HostCollective::plan_scatter(const Pipeline::Buffers& buffers) {
  const Signature& call = call_.signature;
  const int64_t element = dtype_size(call.dtype);
  const auto root = static_cast<size_t>(call.root);
  const int64_t own = counts_[static_cast<size_t>(group_.rank)];
  receive_counts_.assign(counts_.size(), 0);
  if (group_.rank == call.root) {
    copy_bytes(buffers.out,
               static_cast<const std::byte*>(buffers.in) + sum_before(counts_, group_.rank) * element,
               own * element);
  } else {
    receive_counts_[root] = own;
    std::fill(counts_.begin(), counts_.end(), 0);
  }
  pipeline_.plan().plan_pairs(group_.rank, group_.size(), counts_, receive_counts_, element, chunk_bytes_);
}

// All ranks' checksums add up to zero when each pair's counts fit: what one sends is added, what the other
// expects is taken away.
uint64_t HostCollective::split_checksum() const {
  const auto term = [](int64_t from, int64_t to, int64_t count) {
    const std::array<int64_t, 3> triple{from, to, count};
    return hash_bytes(triple.data(), sizeof(triple));
  };
  uint64_t sum = 0;
  for (int r = 0; r < group_.size(); ++r) {
    sum += term(group_.rank, r, counts_[static_cast<size_t>(r)]);
    sum -= term(r, group_.rank, receive_counts_[static_cast<size_t>(r)]);
  }
  return sum;
}

bool HostCollective::splits_fit() const {
  if (call_.signature.kind != CollectiveKind::kAllToAllV || block_bytes_.empty()) return true;
  uint64_t sum = 0;
  for (int r = 0; r < group_.size(); ++r) {
    uint64_t part = 0;
    copy_bytes(&part, exchange_.block(r), sizeof(part));
    sum += part;
  }
  return sum == 0;
}

// Somewhere the counts do not fit: all ranks look at all counts, to say the same about it.
void HostCollective::start_explaining() {
  const auto size = static_cast<size_t>(group_.size());
  splits_.assign(2 * size * size, 0);
  int64_t* const own = splits_.data() + 2 * size * static_cast<size_t>(group_.rank);
  std::copy(counts_.begin(), counts_.end(), own);
  std::copy(receive_counts_.begin(), receive_counts_.end(), own + size);
  const std::vector<int64_t> each(size, static_cast<int64_t>(2 * size));
  pipeline_.plan().plan_all_gather(group_.rank, group_.size(), each, sizeof(int64_t), chunk_bytes_);
  pipeline_.start(group_, make_tag(group_.context, call_.signature.sequence, kTransferPhase), chunk_bytes_,
                  {.in = splits_.data(), .out = splits_.data()});
}

void HostCollective::finish_explaining() {
  const auto size = static_cast<size_t>(group_.size());
  const auto sent = [&](size_t from, size_t to) { return splits_[2 * size * from + to]; };
  const auto expected = [&](size_t from, size_t to) { return splits_[2 * size * to + size + from]; };
  stage_ = Stage::kFailed;
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      if (sent(from, to) == expected(from, to)) continue;
      mismatch_ =
          split_mismatch(group_.topology, call_.signature,
                         {static_cast<int>(from), static_cast<int>(to), sent(from, to), expected(from, to)});
      return;
    }
  }
}

}  // namespace rondo
