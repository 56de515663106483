// Reductions of 16-bit floats through a hierarchy. They are added in float and rounded once: so float is what
// the ranks of a host add up, and what those of different hosts send each other; each of these completes a
// part of the shard, and the completed parts travel with 16 bits again.
#include "runtime/comm/host/collective.h"
#include "runtime/comm/host/hierarchy.h"

namespace rondo {

void HostCollective::plan_wide() {
  const int64_t count = whole_in_.count;
  if (static_cast<int64_t>(wide_.size()) < count) wide_.resize(static_cast<size_t>(count));
  widen(call_.signature.dtype, whole_in_.data, wide_.data(), count);
  whole_in_ = {wide_.data(), count, DType::kF32};
  const int64_t before = static_cast<std::byte*>(shard_.data) - static_cast<std::byte*>(whole_out_.data);
  shard_ = {wide_.data() + before / dtype_size(call_.signature.dtype), shard_.count, DType::kF32};
}

void HostCollective::start_wide_across() {
  const HostGroup& across = hierarchy_->across;
  const int64_t each = shard_.count / across.size();
  const int64_t longer = shard_.count % across.size();
  host_parts_.clear();
  for (int64_t h = 0; h < across.size(); ++h) host_parts_.push_back(each + (h < longer ? 1 : 0));
  const int64_t before = across.rank * each + std::min<int64_t>(across.rank, longer);
  Reduction rest = reduction();
  rest.dtype = DType::kF32;
  rest.prescale = 1.0;
  pipeline_.plan().plan_direct_reduce_scatter(across.rank, across.size(), host_parts_, sizeof(float),
                                              chunk_bytes_);
  pipeline_.start(across, make_tag(across.context, call_.signature.sequence, kTransferPhase), chunk_bytes_,
                  {.in = shard_.data, .out = static_cast<float*>(shard_.data) + before, .reduction = rest});
}

// The ranks that hold this shard on the other hosts have added what they could.
void HostCollective::finish_across() {
  if (!halves_ || stage_ == Stage::kAcrossSums) {
    stage_ = Stage::kGather;
    return;
  }
  const HostGroup& across = hierarchy_->across;
  const DType dtype = call_.signature.dtype;
  const int64_t element = dtype_size(dtype);
  const auto* sums = static_cast<const float*>(shard_.data);
  shard_ = {static_cast<std::byte*>(whole_out_.data) + (sums - wide_.data()) * element, shard_.count, dtype};
  int64_t before = 0;
  for (int h = 0; h < across.rank; ++h) before += host_parts_[static_cast<size_t>(h)];
  narrow(dtype, sums + before, static_cast<std::byte*>(shard_.data) + before * element,
         host_parts_[static_cast<size_t>(across.rank)]);
  pipeline_.plan().plan_all_gather(across.rank, across.size(), host_parts_, element, chunk_bytes_);
  // Messages between two ranks stay in order: those of the first half are through.
  pipeline_.start(across, make_tag(across.context, call_.signature.sequence, kTransferPhase), chunk_bytes_,
                  {.in = shard_.data, .out = shard_.data});
  stage_ = Stage::kAcrossSums;
}

}  // namespace rondo
