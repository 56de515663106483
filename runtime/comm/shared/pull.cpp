// SharedCollective's other transfers: every rank takes what it wants from the others, from their letters,
// from where it lies in shared memory, or from their slots. A slot has one lane when all ranks want the same,
// else one for each rank.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/comm/shared/collective.h"
#include "runtime/comm/shared/world.h"

namespace rondo {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kPieceBytes = 1 << 20;  // between two looks at the other collectives

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int64_t SharedCollective::lanes() const {
  const bool own_blocks = call_.transfer == Transfer::kAllToAll ||
                          call_.transfer == Transfer::kReduceScatter || call_.transfer == Transfer::kScatter;
  return own_blocks ? size() : 1;
}

int64_t SharedCollective::lane_bytes() const {
  return std::max(kLine, SharedGroup::kSlotBytes / lanes() / kLine * kLine);
}

SharedCollective::Piece SharedCollective::block_of(std::span<const int64_t> counts, int rank) const {
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  return {before * element(), counts[static_cast<size_t>(rank)] * element()};
}

SharedCollective::Want SharedCollective::want_from(int other) const {
  Want want;
  auto* out = static_cast<std::byte*>(call_.out.data);
  switch (call_.transfer) {
    case Transfer::kBroadcast:
      if (other != call_.root || rank() == call_.root) return {};
      want.block = {0, call_.out.bytes()};
      want.to = out;
      break;
    case Transfer::kGather:
      if (rank() != call_.root) return {};
      [[fallthrough]];
    case Transfer::kAllGather:
      want.block = block_of(out_counts_, other);
      want.to = out + want.block.offset;
      want.block.offset = 0;
      break;
    case Transfer::kScatter:
      if (other != call_.root) return {};
      want.block = block_of(in_counts_, rank());
      want.to = out;
      break;
    case Transfer::kReduceScatter:
      want.block = block_of(in_counts_, rank());
      want.to = out;
      break;
    case Transfer::kAllToAll:
      want.block = block_of({group_.counts(other, number_), static_cast<size_t>(size())}, rank());
      want.to = out + block_of(out_counts_, other).offset;
      break;
    case Transfer::kBarrier:
    case Transfer::kAllReduce:
      return {};
  }
  const Post& theirs = group_.post(other, number_);
  want.source = theirs.source;
  if (other == rank()) {
    want.source = Source::kInPlace;
    want.from = static_cast<const std::byte*>(call_.in.data) + want.block.offset;
  } else if (want.source == Source::kTiny || want.source == Source::kLetter) {
    want.from = group_.letter(other, number_) + want.block.offset;
  } else if (want.source == Source::kInPlace) {
    const int world_rank = group_.world_ranks()[static_cast<size_t>(other)];
    want.from = group_.world().memory().at(theirs.places.in, world_rank) + want.block.offset;
  } else {
    want.chunks = theirs.chunks;
  }
  return want;
}

void SharedCollective::plan_pull() {
  wants_.clear();
  int64_t longest = 0;
  for (int r = 0; r < size(); ++r) {
    const Post& theirs = group_.post(r, number_);
    if (theirs.source == Source::kSlots) chunks_ = std::max(chunks_, theirs.chunks);
    if (theirs.source == Source::kInPlace) in_place_sources_ = true;
    wants_.push_back(want_from(r));
    longest = std::max(longest, wants_.back().block.bytes);
  }
  piece_bytes_ = chunks_ > 0 ? lane_bytes() : kPieceBytes;
  pieces_ = std::max(chunks_, divide_up(longest, piece_bytes_));
  stage_ = Stage::kPull;
}

bool SharedCollective::advance_pull() {
  const Post& mine = group_.post(rank(), number_);
  const int64_t to_fill = mine.source == Source::kSlots ? mine.chunks : 0;
  bool moved = false;
  const int steps = group_.slots_in_use();
  for (int step = 0; step < steps; ++step) {
    const bool filled = filled_ < to_fill && fill_lanes();
    // Its own piece must be in the slot before something takes its place.
    const bool taken = taken_ < pieces_ && (taken_ >= to_fill || taken_ < filled_) && take_piece();
    if (filled_ == to_fill && taken_ == pieces_) {
      depart();
      return true;
    }
    if (!filled && !taken) return moved;
    moved = true;
  }
  return moved;
}

bool SharedCollective::fill_lanes() {
  const int64_t chunk = base_ + filled_;
  if (!all_reached(&Mailbox::consumed, chunk + 1 - group_.slots_in_use())) return false;
  std::byte* slot = group_.slot(rank(), chunk);
  const auto* in = static_cast<const std::byte*>(call_.in.data);
  const int64_t offset = filled_ * lane_bytes();
  Piece block{0, call_.in.bytes()};
  for (int lane = 0; lane < lanes(); ++lane) {
    if (lanes() > 1) {
      block.bytes = in_counts_[static_cast<size_t>(lane)] * element();
    }
    const int64_t bytes = std::min(lane_bytes(), block.bytes - offset);
    if (bytes > 0 && (lanes() == 1 || lane != rank()))
      std::memcpy(slot + lane * lane_bytes(), in + block.offset + offset, static_cast<size_t>(bytes));
    block.offset += block.bytes;
  }
  ++filled_;
  group_.mailbox(rank()).filled.store(base_ + filled_);
  group_.ring();
  return true;
}

bool SharedCollective::take_piece() {
  const int64_t chunk = base_ + taken_;
  const int64_t offset = taken_ * piece_bytes_;
  for (int r = 0; r < size(); ++r) {
    if (taken_ < wants_[static_cast<size_t>(r)].chunks && group_.mailbox(r).filled.load() < chunk + 1)
      return false;
  }
  const bool reduces = call_.transfer == Transfer::kReduceScatter;
  inputs_.clear();
  int64_t bytes = 0;
  for (int r = 0; r < size(); ++r) {
    const Want& want = wants_[static_cast<size_t>(r)];
    bytes = std::min(piece_bytes_, want.block.bytes - offset);
    if (bytes <= 0) continue;
    const std::byte* from = want.source == Source::kSlots
                                ? group_.slot(r, chunk) + (lanes() > 1 ? rank() * lane_bytes() : 0)
                                : want.from + offset;
    if (reduces) {
      inputs_.push_back(from);
    } else if (want.to + offset != from) {
      std::memcpy(want.to + offset, from, static_cast<size_t>(bytes));
    }
  }
  if (reduces && bytes > 0) {
    outputs_.assign(1, static_cast<std::byte*>(call_.out.data) + offset);
    reduce(call_.reduction, inputs_, outputs_, bytes / element());
  }
  ++taken_;
  if (taken_ <= chunks_) {
    group_.mailbox(rank()).consumed.store(base_ + taken_);
    group_.ring();
  }
  return true;
}

}  // namespace rondo
