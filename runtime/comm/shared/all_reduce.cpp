// SharedCollective's all_reduce, in three ways: letters (every rank reduces all of the short inputs), in
// place (every rank reduces its share of all buffers and writes it to all of them), and chunks (through
// slots).
#include <algorithm>
#include <cstring>

#include "runtime/comm/shared/collective.h"
#include "runtime/comm/shared/world.h"

namespace rondo {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kPieceBytes = 1 << 20;  // between two looks at the other collectives

}  // namespace

// Shares begin on cache lines of the buffer, so that ranks do not write to the same one. Neighbours in the
// buffer are neighbours in the machine.
SharedCollective::Piece SharedCollective::share_of(int64_t bytes, int rank) const {
  const int64_t lines = (bytes + kLine - 1) / kLine;
  const int64_t width = (lines + size() - 1) / size() * kLine;
  const int64_t begin = std::min(width * group_.place(rank), bytes);
  return {begin, std::min(width, bytes - begin)};
}

void SharedCollective::plan_all_reduce() {
  inputs_.clear();
  outputs_.clear();
  const auto post_of = [this](int r) -> const Post& { return group_.post(r, number_); };
  bool in_place = true;
  bool letters = true;
  for (int r = 0; r < size(); ++r) {
    in_place = in_place && post_of(r).source == Source::kInPlace;
    letters = letters && (post_of(r).source == Source::kLetter || post_of(r).source == Source::kTiny);
  }
  if (size() == 1 || letters) {
    for (int r = 0; r < size(); ++r) inputs_.push_back(group_.letter(r, number_));
    if (size() == 1) inputs_[0] = call_.in.data;
    outputs_.push_back(call_.out.data);
    if (call_.in.count > 0) reduce(call_.reduction, inputs_, outputs_, call_.in.count);
    return finish();
  }
  if (!in_place) {
    // Whatever the ranks have: what is overwritten in place cannot be read by the others meanwhile.
    chunks_ = (call_.in.bytes() + SharedGroup::kSlotBytes - 1) / SharedGroup::kSlotBytes;
    stage_ = Stage::kChunks;
    return;
  }
  const SharedMemory& memory = group_.world().memory();
  const Piece share = share_of(call_.in.bytes(), rank());
  for (int r = 0; r < size(); ++r) {
    const int world_rank = group_.world_ranks()[static_cast<size_t>(r)];
    inputs_.push_back(memory.at(post_of(r).places.in, world_rank) + share.offset);
    outputs_.push_back(memory.at(post_of(r).places.out, world_rank) + share.offset);
  }
  in_place_sources_ = true;
  position_ = 0;
  stage_ = Stage::kReduceInPlace;
}

bool SharedCollective::reduce_in_place() {
  const Piece share = share_of(call_.in.bytes(), rank());
  const int64_t bytes = std::min(kPieceBytes, share.bytes - position_);
  reduce(call_.reduction, inputs_, outputs_, bytes / element());
  for (const void*& input : inputs_) input = static_cast<const std::byte*>(input) + bytes;
  for (void*& output : outputs_) output = static_cast<std::byte*>(output) + bytes;
  position_ += bytes;
  if (position_ == share.bytes) depart();
  return true;
}

// Each rank copies its input chunk by chunk into its slots (fill), reduces its share of all ranks' slots
// (reduce), and copies all shares into its output (take). Two ranks save the middle step: each reduces the
// whole chunk from its own input and the other's slot. Each step goes as far as it can before the next one,
// so that ranks meet once for all slots rather than for each: where cores are scarce, meetings are what
// costs.
bool SharedCollective::advance_chunks() {
  bool moved = false;
  while (filled_ < chunks_ && fill_chunk()) moved = true;
  while (size() > 2 && reduced_ < filled_ && reduce_chunk()) moved = true;
  while (taken_ < (size() > 2 ? reduced_ : filled_) && take_chunk()) moved = true;
  if (taken_ == chunks_) finish();
  return moved;
}

bool SharedCollective::fill_chunk() {
  const int64_t chunk = base_ + filled_;
  if (!all_reached(&Mailbox::consumed, chunk + 1 - group_.slots_in_use())) return false;
  const int64_t offset = filled_ * SharedGroup::kSlotBytes;
  const int64_t bytes = std::min(SharedGroup::kSlotBytes, call_.in.bytes() - offset);
  std::memcpy(group_.slot(rank(), chunk), static_cast<const std::byte*>(call_.in.data) + offset,
              static_cast<size_t>(bytes));
  ++filled_;
  group_.mailbox(rank()).filled.store(base_ + filled_);
  group_.ring();
  return true;
}

bool SharedCollective::reduce_chunk() {
  const int64_t chunk = base_ + reduced_;
  if (!all_reached(&Mailbox::filled, chunk + 1)) return false;
  const int64_t offset = reduced_ * SharedGroup::kSlotBytes;
  const Piece share = share_of(std::min(SharedGroup::kSlotBytes, call_.in.bytes() - offset), rank());
  inputs_.clear();
  for (int r = 0; r < size(); ++r) inputs_.push_back(group_.slot(r, chunk) + share.offset);
  outputs_.assign({group_.slot(rank(), chunk) + share.offset,
                   static_cast<std::byte*>(call_.out.data) + offset + share.offset});
  reduce(call_.reduction, inputs_, outputs_, share.bytes / element());
  ++reduced_;
  group_.mailbox(rank()).reduced.store(base_ + reduced_);
  group_.ring();
  return true;
}

bool SharedCollective::take_chunk() {
  const int64_t chunk = base_ + taken_;
  if (!all_reached(size() > 2 ? &Mailbox::reduced : &Mailbox::filled, chunk + 1)) return false;
  const int64_t offset = taken_ * SharedGroup::kSlotBytes;
  const int64_t bytes = std::min(SharedGroup::kSlotBytes, call_.in.bytes() - offset);
  std::byte* out = static_cast<std::byte*>(call_.out.data) + offset;
  if (size() == 2) {
    const void* own = static_cast<const std::byte*>(call_.in.data) + offset;
    const void* other = group_.slot(1 - rank(), chunk);
    inputs_.assign({rank() == 0 ? own : other, rank() == 0 ? other : own});
    outputs_.assign(1, out);
    reduce(call_.reduction, inputs_, outputs_, bytes / element());
  } else {
    for (int r = 0; r < size(); ++r) {
      const Piece share = share_of(bytes, r);
      if (r == rank() || share.bytes == 0) continue;
      std::memcpy(out + share.offset, group_.slot(r, chunk) + share.offset, static_cast<size_t>(share.bytes));
    }
  }
  ++taken_;
  group_.mailbox(rank()).consumed.store(base_ + taken_);
  group_.ring();
  return true;
}

}  // namespace rondo
