// The second phase of a large collective: chunks flow between the ranks, several at a time.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/comm/host/chunk_plan.h"
#include "runtime/comm/reduce.h"

namespace rondo {

struct HostGroup;

class Pipeline {
 public:
  // Chunks on the way at once, in each direction: enough to keep a link busy while this rank adds or sleeps;
  // fewer of the long ones, so that summands are still in the cache when they are added.
  static constexpr int64_t kMaxWindow = 8;
  static constexpr int64_t kWindowBytes = 512 << 10;

  struct Buffers {
    const void* in = nullptr;
    void* out = nullptr;
    Reduction reduction = {};  // in rings without a prescale
  };

  Pipeline() {
    receive_requests_.fill(MPI_REQUEST_NULL);
    send_requests_.fill(MPI_REQUEST_NULL);
  }

  // To be filled before start().
  ChunkPlan& plan() { return plan_; }
  // `chunk_bytes` is the plan's upper bound.
  void start(const HostGroup& group, int tag, int64_t chunk_bytes, const Buffers& buffers);

  // Goes on without waiting, for about a window of chunks at most; true when anything moved.
  bool advance();
  bool done() const { return received_ == plan_.receives() && sent_ == plan_.sends(); }
  int waiting_for() const;  // a rank
  int64_t bytes_received() const { return bytes_received_; }
  // Returns false when MPI may still use this object's memory.
  bool abandon() noexcept;

 private:
  bool post_receives();
  bool post_sends();
  bool finish_receives();
  bool finish_sends();
  std::byte* slot(int64_t i) { return slots_.data() + (i % slot_count_) * slot_bytes_; }
  const std::byte* input(int64_t offset) const { return static_cast<const std::byte*>(buffers_.in) + offset; }
  std::byte* output(int64_t offset) const { return static_cast<std::byte*>(buffers_.out) + offset; }
  void add_partial(const ChunkPlan::Chunk& chunk);
  void add_row(const ChunkPlan::Chunk& chunk);

  const HostGroup* group_ = nullptr;
  int tag_ = 0;
  ChunkPlan plan_;
  Buffers buffers_;
  int64_t window_ = kMaxWindow;
  int64_t slot_bytes_ = 0;
  int64_t slot_count_ = 0;
  std::vector<std::byte> slots_;  // where summands arrive
  std::vector<const void*> row_;  // the summands of a row, by rank
  // Of each stream: how many are posted, and how many of these are over. Both count in order.
  int64_t receives_posted_ = 0;
  int64_t received_ = 0;
  int64_t sends_posted_ = 0;
  int64_t sent_ = 0;
  int64_t bytes_received_ = 0;
  std::array<MPI_Request, kMaxWindow> receive_requests_;
  std::array<MPI_Request, kMaxWindow> send_requests_;
};

}  // namespace rondo
