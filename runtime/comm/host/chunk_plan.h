// Which bytes a rank receives from its left neighbour and sends to its right one, chunk by chunk, for the
// pipelined collectives. Pure arithmetic: the transfer itself is Pipeline's.
//
// Ring of P ranks (Patarasuk and Yuan, JPDC 2009). All-reduce: the buffer is cut into P segments; in step s
// of 0..P-2 rank r sends segment r-s and adds what it receives to segment r-s-1; after P-1 steps it owns the
// sum of segment r+1; in P-1 further steps the sums go round. Each segment starts at one rank and meets the
// others in ring order, so its sum is the same on all ranks and in every run. All-gather: P-1 steps, blocks
// instead of segments. Chain: the root's buffer goes from neighbour to neighbour.
//
// A step moves C chunks (the same C everywhere; the last ones of a short segment are empty and are not sent).
// Chunk number i of a stream is chunk i % C of step i / C.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

class ChunkPlan {
 public:
  struct Chunk {
    int64_t offset = 0;  // bytes into the output buffer
    int64_t bytes = 0;
    bool from_input =
        false;            // send: from the input buffer (its start is the output's `offset`), else the output
    bool reduce = false;  // receive: combine with the input, else it is the result
    bool last = false;    // receive: after this the segment's sum is complete
  };

  ChunkPlan() = default;
  // chunk_bytes is rounded down to whole elements, at least one.
  void plan_all_reduce(int rank, int size, int64_t count, int64_t element_bytes, int64_t chunk_bytes);
  void plan_all_gather(int rank, int size, std::span<const int64_t> counts, int64_t element_bytes,
                       int64_t chunk_bytes);
  void plan_chain(int rank, int size, int root, int64_t bytes, int64_t chunk_bytes);

  int64_t receives() const { return receives_; }
  int64_t sends() const { return sends_; }
  Chunk receive(int64_t i) const;
  Chunk send(int64_t i) const;
  // How many receives must be done before send i may start: it forwards what they brought.
  int64_t receives_before_send(int64_t i) const;
  // How many sends must be done before receive i may overwrite what they read.
  int64_t sends_before_receive(int64_t i) const;

 private:
  enum class Kind : uint8_t { kAllReduce, kAllGather, kChain };

  Chunk chunk_of_segment(int64_t segment, int64_t index) const;
  int64_t wrap(int64_t rank) const { return ((rank % size_) + size_) % size_; }

  Kind kind_ = Kind::kChain;
  int64_t rank_ = 0;  // chain: the distance from the root
  int64_t size_ = 1;
  int64_t chunk_bytes_ = 1;
  int64_t chunks_ = 0;  // C
  int64_t receives_ = 0;
  int64_t sends_ = 0;
  std::vector<int64_t> begins_;  // of the segments, in bytes; one more than there are
};

}  // namespace rondo
