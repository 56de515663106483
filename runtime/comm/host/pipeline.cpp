#include "runtime/comm/host/pipeline.h"

#include <algorithm>

#include "runtime/comm/host/group.h"

namespace rondo {

void Pipeline::start(const HostGroup& group, int tag, int64_t chunk_bytes, const Buffers& buffers) {
  group_ = &group;
  tag_ = tag;
  buffers_ = buffers;
  slot_bytes_ = chunk_bytes;
  window_ = std::clamp<int64_t>(kWindowBytes / chunk_bytes, 2, kMaxWindow);
  slot_count_ = window_ + plan_.kept();
  // Grows once and stays; only reductions need the slots.
  const bool adds = plan_.receives() > 0 && plan_.receive(0).arrival != ChunkPlan::Arrival::kResult;
  const auto bytes = static_cast<size_t>(adds ? slot_count_ * chunk_bytes : 0);
  if (slots_.size() < bytes) slots_.resize(bytes);
  row_.resize(static_cast<size_t>(group.size()));
  receives_posted_ = received_ = sends_posted_ = sent_ = bytes_received_ = 0;
  receive_requests_.fill(MPI_REQUEST_NULL);
  send_requests_.fill(MPI_REQUEST_NULL);
}

bool Pipeline::post_receives() {
  bool moved = false;
  while (receives_posted_ < plan_.receives() && receives_posted_ - received_ < window_ &&
         sent_ >= plan_.sends_before_receive(receives_posted_)) {
    const ChunkPlan::Chunk chunk = plan_.receive(receives_posted_);
    if (chunk.bytes > 0) {
      const bool final = chunk.arrival == ChunkPlan::Arrival::kResult;
      start_receive(*group_, final ? output(chunk.out_offset) : slot(receives_posted_), chunk.bytes,
                    chunk.peer, tag_, receive_requests_[static_cast<size_t>(receives_posted_ % window_)]);
    }
    ++receives_posted_;
    moved = true;
  }
  return moved;
}

void Pipeline::add_partial(const ChunkPlan::Chunk& chunk) {
  Reduction reduction{.dtype = buffers_.reduction.dtype, .op = buffers_.reduction.op};
  if (chunk.arrival == ChunkPlan::Arrival::kLastSum) reduction = buffers_.reduction;
  const std::array<const void*, 2> both{slot(received_), input(chunk.in_offset)};
  void* const out = output(chunk.out_offset);
  reduce(reduction, both, std::span(&out, 1), chunk.bytes / dtype_size(reduction.dtype));
}

void Pipeline::add_row(const ChunkPlan::Chunk& chunk) {
  // The last of the row comes from the rank after this one; step s of the row came in s-1 chunks after the
  // first.
  for (int step = 1; step <= chunk.step; ++step) {
    const int peer = (group_->rank - step + group_->size()) % group_->size();
    row_[static_cast<size_t>(peer)] = slot(received_ - chunk.step + step);
  }
  row_[static_cast<size_t>(group_->rank)] = input(chunk.in_offset);
  void* const out = output(chunk.out_offset);
  reduce(buffers_.reduction, row_, std::span(&out, 1), chunk.bytes / dtype_size(buffers_.reduction.dtype));
}

bool Pipeline::finish_receives() {
  bool moved = false;
  const int64_t end = received_ + window_;
  while (received_ < receives_posted_ && received_ < end) {
    const ChunkPlan::Chunk chunk = plan_.receive(received_);
    if (!test(*group_, receive_requests_[static_cast<size_t>(received_ % window_)], chunk.peer)) break;
    switch (chunk.arrival) {
      case ChunkPlan::Arrival::kPartial:
      case ChunkPlan::Arrival::kLastSum:
        if (chunk.bytes > 0) add_partial(chunk);
        break;
      case ChunkPlan::Arrival::kLastOfRow:
        if (chunk.bytes > 0) add_row(chunk);
        break;
      case ChunkPlan::Arrival::kResult:
      case ChunkPlan::Arrival::kSummand:
        break;
    }
    bytes_received_ += chunk.bytes;
    ++received_;
    moved = true;
    // The neighbour waits for this chunk, and for room for the next: hand on before adding further.
    post_sends();
    post_receives();
  }
  return moved;
}

bool Pipeline::post_sends() {
  bool moved = false;
  while (sends_posted_ < plan_.sends() && sends_posted_ - sent_ < window_ &&
         received_ >= plan_.receives_before_send(sends_posted_)) {
    const ChunkPlan::Chunk chunk = plan_.send(sends_posted_);
    if (chunk.bytes > 0) {
      const std::byte* from = chunk.from_input ? input(chunk.in_offset) : output(chunk.out_offset);
      start_send(*group_, from, chunk.bytes, chunk.peer, tag_,
                 send_requests_[static_cast<size_t>(sends_posted_ % window_)]);
    }
    ++sends_posted_;
    moved = true;
  }
  return moved;
}

bool Pipeline::finish_sends() {
  bool moved = false;
  while (sent_ < sends_posted_ &&
         test(*group_, send_requests_[static_cast<size_t>(sent_ % window_)], plan_.send(sent_).peer)) {
    ++sent_;
    moved = true;
  }
  return moved;
}

bool Pipeline::advance() {
  bool moved = finish_sends();
  moved = post_receives() || moved;
  moved = post_sends() || moved;
  moved = finish_receives() || moved;
  return moved;
}

int Pipeline::waiting_for() const {
  return received_ < plan_.receives() ? plan_.receive(received_).peer : plan_.send(sent_).peer;
}

bool Pipeline::abandon() noexcept {
  bool safe = true;
  for (MPI_Request& request : send_requests_) safe = abandon_send(request) && safe;
  for (MPI_Request& request : receive_requests_) safe = abandon_receive(request) && safe;
  return safe;
}

}  // namespace rondo
