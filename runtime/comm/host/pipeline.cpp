#include "runtime/comm/host/pipeline.h"

#include <algorithm>

#include "runtime/comm/host/group.h"
#include "runtime/comm/reduce.h"

namespace rondo {

void Pipeline::start(const HostGroup& group, int tag, int64_t chunk_bytes, const Buffers& buffers) {
  group_ = &group;
  tag_ = tag;
  buffers_ = buffers;
  slot_bytes_ = chunk_bytes;
  window_ = std::clamp<int64_t>(kWindowBytes / chunk_bytes, 2, kMaxWindow);
  // Grows once and stays; only reductions need the slots.
  const auto bytes =
      static_cast<size_t>(plan_.receives() > 0 && plan_.receive(0).reduce ? window_ * chunk_bytes : 0);
  if (slots_.size() < bytes) slots_.resize(bytes);
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
      std::byte* to =
          chunk.reduce ? slot(receives_posted_) : static_cast<std::byte*>(buffers_.out) + chunk.offset;
      start_receive(*group_, to, chunk.bytes, group_->left(), tag_,
                    receive_requests_[static_cast<size_t>(receives_posted_ % window_)]);
    }
    ++receives_posted_;
    moved = true;
  }
  return moved;
}

bool Pipeline::finish_receives() {
  bool moved = false;
  const int64_t end = received_ + window_;
  while (received_ < receives_posted_ && received_ < end &&
         test(*group_, receive_requests_[static_cast<size_t>(received_ % window_)], group_->left())) {
    const ChunkPlan::Chunk chunk = plan_.receive(received_);
    if (chunk.reduce && chunk.bytes > 0) {
      combine(buffers_.dtype, buffers_.op, slot(received_),
              static_cast<const std::byte*>(buffers_.in) + chunk.offset,
              static_cast<std::byte*>(buffers_.out) + chunk.offset, chunk.bytes / dtype_size(buffers_.dtype),
              chunk.last ? buffers_.divisor : 1);
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
      const void* from = chunk.from_input ? buffers_.in : buffers_.out;
      start_send(*group_, static_cast<const std::byte*>(from) + chunk.offset, chunk.bytes, group_->right(),
                 tag_, send_requests_[static_cast<size_t>(sends_posted_ % window_)]);
    }
    ++sends_posted_;
    moved = true;
  }
  return moved;
}

bool Pipeline::finish_sends() {
  bool moved = false;
  while (sent_ < sends_posted_ &&
         test(*group_, send_requests_[static_cast<size_t>(sent_ % window_)], group_->right())) {
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
  return received_ < plan_.receives() ? group_->left() : group_->right();
}

bool Pipeline::abandon() noexcept {
  bool safe = true;
  for (MPI_Request& request : send_requests_) safe = abandon_send(request) && safe;
  for (MPI_Request& request : receive_requests_) safe = abandon_receive(request) && safe;
  return safe;
}

}  // namespace rondo
