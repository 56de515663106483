// One collective through shared memory: a small state machine that somebody drives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/shared/group.h"
#include "runtime/comm/signature.h"

namespace rondo {

// What moves. P is the group's size; blocks lie one after the other in rank order. In place (`in` is `out`,
// or this rank's block of it, or the other way round) is allowed everywhere.
enum class Transfer : uint8_t {
  kBarrier,
  kAllReduce,      // out[i] = op over ranks of in[i]
  kReduceScatter,  // in: P blocks, in_counts; out: this rank's block, reduced
  kBroadcast,      // in of the root to out of all; both are the same span
  kAllGather,      // out: P blocks, out_counts
  kAllToAll,       // in: P blocks, in_counts, one for each rank; out: P blocks, out_counts, one from each
  kGather,         // as kAllGather, `out` at the root only; out_counts on every rank
  kScatter,        // `in` at the root only: P blocks, in_counts on every rank; out: this rank's block
};

struct SharedCall {
  Transfer transfer = Transfer::kBarrier;
  Signature signature =
      {};  // compared among the members as it is; it must tell what P, root and counts do not
  ConstSpan in = {};
  Span out = {};
  int root = 0;  // a rank of the group
  Reduction reduction = {};
  std::span<const int64_t> in_counts = {};  // elements; read by start() only
  std::span<const int64_t> out_counts = {};
};

// Belongs to one group and is used again and again, so that collectives allocate nothing. Whoever drives it
// calls advance() until it is over; SharedWait says how to wait. Results do not depend on which way the data
// takes: reductions run in rank order.
class SharedCollective {
 public:
  explicit SharedCollective(SharedGroup& group);

  // The spans stay untouched until it is over. All members start their calls in the same order.
  void start(const SharedCall& call);

  // Goes on without waiting, for about a millisecond at most; true when anything moved. Does nothing before
  // the group's earlier calls are over.
  bool advance();
  bool over() const { return stage_ == Stage::kOver; }
  const Signature& signature() const { return call_.signature; }

  // After it is over. When members differ nothing was transferred, and later calls still work. The text is
  // the same on every member.
  bool differs() const { return consensus_.differs() || split_.sent != split_.expected; }
  std::string mismatch(const Topology& topology) const;      // of the group's ranks
  const Consensus& consensus() const { return consensus_; }  // meaningful when it differs

  // While it is not over, for messages: whether it waits for that member, to call it or to do its share.
  bool waits_for(int rank) const;
  bool everybody_called() const { return stage_ > Stage::kArrive; }

 private:
  enum class Stage : uint8_t { kIdle, kQueued, kArrive, kReduceInPlace, kChunks, kPull, kDepart, kOver };

  struct Piece {
    int64_t offset = 0;  // bytes
    int64_t bytes = 0;
  };
  // What this rank takes from another one.
  struct Want {
    Source source = Source::kNone;
    const std::byte* from = nullptr;  // kLetter, kInPlace: where it lies
    Piece block;                      // of the other's input
    std::byte* to = nullptr;
    int64_t chunks = 0;  // kSlots
  };

  int size() const { return group_.size(); }
  int rank() const { return group_.rank(); }
  int64_t element() const { return dtype_size(dtype_); }

  // collective.cpp
  void post();
  void choose_source(Post& mine);
  void choose_reduction(Post& mine);
  void write_letter(Post& mine);
  Place find(ConstSpan span) const;
  bool arrive();
  void compare();
  void compare_counts();
  const Signature& signature_of(int rank) const;
  void plan();
  void depart();
  bool wait_for_departure();
  void finish();

  // all_reduce.cpp
  void plan_all_reduce();
  bool reduce_in_place();
  bool advance_chunks();
  bool fill_chunk();
  bool reduce_chunk();
  bool take_chunk();
  Piece share_of(int64_t bytes, int rank) const;

  // pull.cpp: all others
  void plan_pull();
  Want want_from(int rank) const;
  bool advance_pull();
  bool fill_lanes();
  bool take_piece();
  int64_t lanes() const;
  int64_t lane_bytes() const;
  Piece block_of(std::span<const int64_t> counts, int rank) const;

  bool all_reached(std::atomic<int64_t> Mailbox::*counter, int64_t value) const;

  SharedGroup& group_;
  Stage stage_ = Stage::kIdle;
  SharedCall call_;
  DType dtype_ = DType::kU8;
  int64_t number_ = 0;  // among the group's calls
  int arrived_ = 0;     // ranks below this one have
  Consensus consensus_;
  SplitMismatch split_;            // sent and expected are equal: all fit
  bool in_place_sources_ = false;  // somebody reads somebody's memory: departures count

  int64_t base_ = 0;    // the group's chunks before this call
  int64_t chunks_ = 0;  // of this call
  int64_t filled_ = 0;
  int64_t reduced_ = 0;
  int64_t taken_ = 0;
  int64_t pieces_ = 0;  // pull: how many to take; at least chunks_
  int64_t piece_bytes_ = 0;
  int64_t position_ = 0;  // bytes of this rank's share that are reduced

  std::vector<int64_t> in_counts_;
  std::vector<int64_t> out_counts_;
  std::vector<Want> wants_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace rondo
