#include "runtime/comm/shared/collective.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/shared/world.h"

namespace rondo {
namespace {

// All ranks read all letters of an all_reduce, so that one arrival is all they wait for; this bounds what
// they read.
constexpr int64_t kLettersToReduce = 128 << 10;

}  // namespace

SharedCollective::SharedCollective(SharedGroup& group) : group_(group) {
  const auto ranks = static_cast<size_t>(size());
  in_counts_.reserve(ranks);
  out_counts_.reserve(ranks);
  wants_.reserve(ranks);
  inputs_.reserve(ranks);
  outputs_.reserve(ranks);
}

void SharedCollective::start(const SharedCall& call) {
  call_ = call;
  dtype_ = call.transfer == Transfer::kScatter || call.transfer == Transfer::kReduceScatter ? call.out.dtype
                                                                                            : call.in.dtype;
  if (!call.in_counts.empty()) in_counts_.assign(call.in_counts.begin(), call.in_counts.end());
  if (!call.out_counts.empty()) out_counts_.assign(call.out_counts.begin(), call.out_counts.end());
  call_.in_counts = call_.out_counts = {};
  number_ = group_.started_++;
  arrived_ = 0;
  split_ = {};
  in_place_sources_ = false;
  chunks_ = filled_ = reduced_ = taken_ = 0;
  stage_ = Stage::kQueued;
}

bool SharedCollective::advance() {
  bool moved = false;
  if (stage_ == Stage::kQueued) {
    if (group_.finished_ != number_) return false;
    post();
    moved = true;
  }
  if (stage_ == Stage::kArrive) {
    if (!arrive()) return moved;
    compare();
    plan();
    moved = true;
  }
  switch (stage_) {
    case Stage::kReduceInPlace:
      return reduce_in_place() || moved;
    case Stage::kChunks:
      return advance_chunks() || moved;
    case Stage::kPull:
      return advance_pull() || moved;
    case Stage::kDepart:
      return wait_for_departure() || moved;
    default:
      return moved;
  }
}

void SharedCollective::post() {
  Post& mine = group_.post(rank(), number_);
  group_.mailbox(rank()).signatures[number_ & 1] = call_.signature;
  mine.key = call_key(call_.signature);
  mine.chunks = 0;
  mine.source = Source::kNone;
  if (size() > 1) choose_source(mine);
  if (call_.transfer == Transfer::kAllToAll) {
    std::copy(in_counts_.begin(), in_counts_.end(), group_.counts(rank(), number_));
    std::copy(out_counts_.begin(), out_counts_.end(), group_.counts(rank(), number_) + size());
  }
  base_ = group_.chunks_;
  mine.call.store(number_ + 1);
  group_.ring();
  stage_ = Stage::kArrive;
}

void SharedCollective::choose_source(Post& mine) {
  if (call_.transfer == Transfer::kBarrier) return;
  if (call_.transfer == Transfer::kAllReduce) return choose_reduction(mine);
  const bool from_root = call_.transfer == Transfer::kBroadcast || call_.transfer == Transfer::kScatter;
  if (from_root && rank() != call_.root) return;
  const int64_t bytes = call_.in.bytes();
  if (bytes <= SharedGroup::kLetterBytes) return write_letter(mine);
  mine.places = {find(call_.in), {}};
  // An all-to-all in place overwrites what others may not have read yet; the slots keep a copy.
  const bool overwritten = call_.transfer == Transfer::kAllToAll && call_.in.data == call_.out.data;
  mine.source = mine.places.in && !overwritten ? Source::kInPlace : Source::kSlots;
  if (mine.source != Source::kSlots) return;
  int64_t longest = bytes;
  if (lanes() > 1) longest = *std::max_element(in_counts_.begin(), in_counts_.end()) * element();
  mine.chunks = (longest + lane_bytes() - 1) / lane_bytes();
}

// A letter costs one meeting of the ranks and in place two; but a letter is written, and read by all. Where
// ranks have to share cores meetings are what costs.
void SharedCollective::choose_reduction(Post& mine) {
  const int64_t bytes = call_.in.bytes();
  const bool fits = bytes <= SharedGroup::kLetterBytes && bytes * size() <= kLettersToReduce;
  if (fits && (bytes <= group_.world().letter_bytes() || group_.world().crowded())) return write_letter(mine);
  Place in = find(call_.in);
  const Place out = call_.out.data == call_.in.data ? in : find(call_.out);
  if (out && !in) {
    // One copy here, and the others can work on it where it lies.
    std::memcpy(call_.out.data, call_.in.data, static_cast<size_t>(bytes));
    in = out;
  }
  mine.places = {in, out};
  if (in && out) {
    mine.source = Source::kInPlace;
  } else if (fits) {
    write_letter(mine);
  } else {
    mine.source = Source::kSlots;
  }
}

void SharedCollective::write_letter(Post& mine) {
  const int64_t bytes = call_.in.bytes();
  mine.source = bytes <= Post::kTinyBytes ? Source::kTiny : Source::kLetter;
  if (bytes > 0) std::memcpy(group_.letter(rank(), number_), call_.in.data, static_cast<size_t>(bytes));
}

Place SharedCollective::find(ConstSpan span) const {
  return group_.world().memory().find(span.data, span.bytes(), group_.world_ranks());
}

bool SharedCollective::arrive() {
  while (arrived_ < size()) {
    if (group_.post(arrived_, number_).call.load() != number_ + 1) return false;
    ++arrived_;
  }
  return true;
}

void SharedCollective::compare() {
  consensus_.other_rank = -1;
  const uint64_t key = group_.post(0, number_).key;
  bool differs = false;
  for (int r = 1; r < size(); ++r) differs = differs || group_.post(r, number_).key != key;
  if (differs) {
    consensus_ = Consensus(signature_of(0), 0);
    for (int r = 1; r < size(); ++r) consensus_.merge(Consensus(signature_of(r), r));
  } else if (call_.transfer == Transfer::kAllToAll) {
    compare_counts();
  }
}

const Signature& SharedCollective::signature_of(int rank) const {
  return group_.mailbox(rank).signatures[number_ & 1];
}

void SharedCollective::compare_counts() {
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const int64_t sent = group_.counts(from, number_)[to];
      const int64_t expected = group_.counts(to, number_)[size() + from];
      if (sent == expected || split_.sent != split_.expected) continue;
      split_ = {from, to, sent, expected};
    }
  }
}

std::string SharedCollective::mismatch(const Topology& topology) const {
  if (consensus_.differs()) return consensus_.message(topology);
  return split_mismatch(topology, call_.signature, split_);
}

void SharedCollective::plan() {
  if (differs() || call_.transfer == Transfer::kBarrier) {
    finish();
  } else if (call_.transfer == Transfer::kAllReduce) {
    plan_all_reduce();
  } else {
    plan_pull();
  }
}

bool SharedCollective::all_reached(std::atomic<int64_t> Mailbox::*counter, int64_t value) const {
  for (int r = 0; r < size(); ++r) {
    if ((group_.mailbox(r).*counter).load() < value) return false;
  }
  return true;
}

// This rank is through with the others' memory. Whose own memory the others read waits for them.
void SharedCollective::depart() {
  if (!in_place_sources_) return finish();
  const bool read_by_others = group_.post(rank(), number_).source == Source::kInPlace;
  group_.mailbox(rank()).departed.store(number_ + 1);
  group_.ring();
  if (!read_by_others) return finish();
  stage_ = Stage::kDepart;
  wait_for_departure();
}

bool SharedCollective::wait_for_departure() {
  if (!all_reached(&Mailbox::departed, number_ + 1)) return false;
  finish();
  return true;
}

void SharedCollective::finish() {
  group_.chunks_ += chunks_;
  ++group_.finished_;
  stage_ = Stage::kOver;
}

// Exact, since a rank that is needed no more may have left.
bool SharedCollective::waits_for(int other) const {
  const Mailbox& box = group_.mailbox(other);
  const bool slot_taken = box.consumed.load() < base_ + filled_ + 1 - group_.slots_in_use();
  switch (stage_) {
    case Stage::kArrive:
      return group_.post(other, number_).call.load() != number_ + 1;
    case Stage::kDepart:
      return box.departed.load() < number_ + 1;
    case Stage::kChunks:
      return (filled_ < chunks_ && slot_taken) ||
             (size() > 2 && reduced_ < filled_ && box.filled.load() < base_ + reduced_ + 1) ||
             (size() > 2 && taken_ < reduced_ && box.reduced.load() < base_ + taken_ + 1) ||
             (size() == 2 && taken_ < filled_ && box.filled.load() < base_ + taken_ + 1);
    case Stage::kPull:
      return (filled_ < group_.post(rank(), number_).chunks && slot_taken) ||
             (taken_ < wants_[static_cast<size_t>(other)].chunks && box.filled.load() < base_ + taken_ + 1);
    case Stage::kIdle:
    case Stage::kQueued:
    case Stage::kReduceInPlace:
    case Stage::kOver:
      break;
  }
  return false;
}

}  // namespace rondo
