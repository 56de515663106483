// The first phase of every collective: all ranks learn what all of them call, and small payloads ride along.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/signature.h"

namespace rondo {

struct HostGroup;

// A dissemination all-gather (Bruck et al., IEEE TPDS 1997): in step k a rank sends to the one 2^k after it
// and receives from the one 2^k before it, log2 P steps in all. Each message carries the consensus so far
// and, unless the ranks differ, the blocks gathered so far. Since no rank leaves this phase before it has
// heard of all others, nothing of a later phase is sent when there is a difference, and the communicator
// stays usable.
class Exchange {
 public:
  // Collectives whose blocks are no longer than this together are done within this phase.
  static constexpr int64_t kMaxBlocks = 32 << 10;

  // `block_bytes` are the ranks' block sizes, or empty when no blocks ride along; `own` is this rank's block.
  void start(const HostGroup& group, const Signature& signature, std::span<const int64_t> block_bytes,
             const void* own);

  // Goes on as far as possible without waiting; true when anything moved.
  bool advance();
  bool done() const { return distance_ >= size_ && send_ == MPI_REQUEST_NULL; }
  const Consensus& consensus() const { return consensus_; }
  int waiting_for() const;  // a rank

  // Rank `rank`'s block; valid when done without difference.
  const void* block(int rank) const;
  // Returns false when MPI may still use this object's memory.
  bool abandon() noexcept;

 private:
  int blocks_to_move() const;
  int64_t block_begin(int position) const { return begins_[static_cast<size_t>(position)]; }
  void start_step();
  void finish_step(int64_t received);

  const HostGroup* group_ = nullptr;
  int size_ = 1;
  int tag_ = 0;
  int distance_ = 1;  // 2^k
  bool step_started_ = false;
  bool payload_ = false;
  Consensus consensus_;
  // Position j holds the block of the rank j before this one; begins_ has their offsets and the end.
  std::vector<int64_t> begins_;
  std::vector<std::byte> blocks_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  MPI_Request send_ = MPI_REQUEST_NULL;
  MPI_Request receive_ = MPI_REQUEST_NULL;
};

}  // namespace rondo
