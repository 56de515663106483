// Which bytes a rank sends and receives, chunk by chunk, in the pipelined collectives. Pure arithmetic: the
// transfer itself is Pipeline's.
//
// Ring of P ranks (Patarasuk and Yuan, JPDC 2009): messages go from each rank to the next. All-reduce: the
// buffer is cut into P segments; in step s of 0..P-2 rank r sends segment r-s and adds what it receives to
// segment r-s-1; after P-1 steps it owns the sum of segment r+1; in P-1 further steps the sums go round. Each
// segment starts at one rank and meets the others in ring order, so its sum is the same on all ranks and in
// every run. All-gather: P-1 steps, blocks instead of segments. Chain: the root's buffer goes from neighbour
// to neighbour.
//
// Direct: rank r sends segment q to its owner q, for all q, and adds up what it receives for its own segment,
// in rank order, in one place: nothing is rounded in between, and a message takes one hop instead of P-1. For
// an all-reduce the owners then send the sums to all. Pairs: blocks between all pairs of ranks, of any sizes.
// In both, step s of 1..P-1 sends to rank r+s and receives from r-s, so that no rank is everybody's target at
// once.
//
// A step moves C chunks (the same C everywhere, but for pairs; the last ones of a short segment are empty and
// are not sent). In rings and pairs the chunks of a step follow each other; directly a chunk of every segment
// (a row) is moved before the next, so that sums can be made early.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

class ChunkPlan {
 public:
  // What becomes of a chunk that is received.
  enum class Arrival : uint8_t {
    kResult,    // it goes to the output
    kPartial,   // it is combined with the input, to the output
    kLastSum,   // the same, and the sum is complete
    kSummand,   // it waits for the others of its row
    kLastOfRow  // the row is here: its sum goes to the output
  };

  struct Chunk {
    int peer = 0;
    int64_t in_offset = 0;   // bytes into the input: what is sent, or the summand of one's own
    int64_t out_offset = 0;  // bytes into the output: the result, or what is sent
    int64_t bytes = 0;
    bool from_input = false;  // a send: else from the output
    Arrival arrival = Arrival::kResult;
    int step = 0;  // of a summand: rank r-step sent it
  };

  // chunk_bytes is rounded down to whole elements, at least one.
  void plan_all_reduce(int rank, int size, int64_t count, int64_t element_bytes, int64_t chunk_bytes);
  void plan_all_gather(int rank, int size, std::span<const int64_t> counts, int64_t element_bytes,
                       int64_t chunk_bytes);
  void plan_chain(int rank, int size, int root, int64_t bytes, int64_t chunk_bytes);
  void plan_direct_all_reduce(int rank, int size, int64_t count, int64_t element_bytes, int64_t chunk_bytes);
  void plan_direct_reduce_scatter(int rank, int size, std::span<const int64_t> counts, int64_t element_bytes,
                                  int64_t chunk_bytes);
  // Without the rank's block for itself.
  void plan_pairs(int rank, int size, std::span<const int64_t> send_counts,
                  std::span<const int64_t> receive_counts, int64_t element_bytes, int64_t chunk_bytes);

  int64_t receives() const { return receives_; }
  int64_t sends() const { return sends_; }
  Chunk receive(int64_t i) const;
  Chunk send(int64_t i) const;
  // How many receives must be done before send i may start: it forwards what they brought.
  int64_t receives_before_send(int64_t i) const;
  // How many sends must be done before receive i may overwrite what they read.
  int64_t sends_before_receive(int64_t i) const;
  // How many chunks are kept beside the one that arrives, until their row is complete.
  int64_t kept() const;

 private:
  enum class Kind : uint8_t {
    kAllReduce,
    kAllGather,
    kChain,
    kDirectAllReduce,
    kDirectReduceScatter,
    kPairs
  };

  // The chunks to or from the ranks, by step: step s has those from ends[s-1] to ends[s].
  struct Blocks {
    std::vector<int64_t> begins;  // of the ranks' blocks, in bytes; one more than there are
    std::vector<int64_t> ends;
  };

  void begin(Kind kind, int rank, int size, int64_t element_bytes, int64_t chunk_bytes);
  void cut_evenly(int64_t count, int64_t element_bytes);
  void cut_at(std::span<const int64_t> counts, int64_t element_bytes);
  static void cut_blocks(Blocks& blocks, std::span<const int64_t> counts, int64_t element_bytes);
  void count_pairs(Blocks& blocks, int direction);
  Chunk chunk_of_segment(int64_t segment, int64_t index) const;
  Chunk chunk_of_pair(const Blocks& blocks, int64_t i, int direction) const;
  Chunk direct_receive(int64_t i) const;
  Chunk direct_send(int64_t i) const;
  bool direct() const { return kind_ == Kind::kDirectAllReduce || kind_ == Kind::kDirectReduceScatter; }
  int64_t first_phase() const { return (size_ - 1) * chunks_; }
  int wrap(int64_t rank) const { return static_cast<int>(((rank % size_) + size_) % size_); }

  Kind kind_ = Kind::kChain;
  int64_t rank_ = 0;
  int64_t size_ = 1;
  int64_t root_ = 0;  // of a chain
  int64_t chunk_bytes_ = 1;
  int64_t chunks_ = 0;  // C
  int64_t receives_ = 0;
  int64_t sends_ = 0;
  std::vector<int64_t> begins_;  // of the segments, in bytes; one more than there are
  Blocks sent_;                  // of pairs
  Blocks received_;
};

}  // namespace rondo
