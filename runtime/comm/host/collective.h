// One collective in flight over MPI: a small state machine that somebody drives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/cost_model.h"
#include "runtime/comm/host/exchange.h"
#include "runtime/comm/host/group.h"
#include "runtime/comm/host/pipeline.h"
#include "runtime/comm/shared/collective.h"
#include "runtime/comm/signature.h"

namespace rondo {

class HostEngine;
class Notes;
struct Hierarchy;
enum class Attendance : uint8_t;

// The arguments of a call.
struct HostCall {
  Signature signature;
  ConstSpan in;
  Span out;
  // The arrays that they need are copied by start().
  std::span<const int64_t> counts = {};          // of blocks; all_to_all_v: what is sent
  std::span<const int64_t> receive_counts = {};  // all_to_all_v
  std::span<const SpanPair> pairs = {};          // all_reduce_group
  const Event* after = nullptr;
  std::chrono::milliseconds deadline{0};  // never 0
};

// States live in their communicator's pool and keep their buffers, so that collectives allocate nothing once
// the pool has seen the program's largest calls. Everything but the WorkState functions needs the session's
// lock.
class HostCollective final : public WorkState {
 public:
  using Clock = std::chrono::steady_clock;

  HostCollective(HostEngine& engine, const HostGroup& group, std::vector<HostCollective*>& idle);

  // `hierarchy` is the communicator's, or null; `set` is not null when all its ranks share memory.
  void start(const HostCall& call, int64_t chunk_bytes, const CostModel& costs, Hierarchy* hierarchy,
             SharedGroup* set);

  // Goes on as far as possible without waiting; true when anything moved. Throws PeerError.
  bool advance();
  bool over() const { return stage_ == Stage::kDone || stage_ == Stage::kFailed; }
  bool in_flight() const { return stage_ != Stage::kIdle && !over(); }
  bool overdue(Clock::time_point now) const { return !over() && now > deadline_; }
  const HostGroup& group() const { return group_; }
  int64_t sequence() const { return call_.signature.sequence; }
  // "all_reduce #12 "grads/3" of 4000 bytes was not done within 5000 ms: waited for rank 3 (node7) to call
  // it". `notes` has the ranks' answers; null: nobody was asked.
  std::string overdue_text(const Notes* notes) const;
  // Ends it with the engine's failure.
  void fail();
  // After a failure: MPI may still use this object's buffers, so it must outlive MPI.
  bool memory_lost() const { return memory_lost_; }

  bool ready() override;
  void wait() override;
  void order_before(Stream& stream) override;
  void release() override;

 private:
  enum class Stage : uint8_t {
    kIdle,
    kAfter,
    kExchange,
    kTransfer,
    kScatter,
    kAcross,
    kAcrossSums,
    kGather,
    kInside,
    kExplain,
    kDone,
    kFailed
  };

  void start_exchange();
  void choose_blocks();
  void finish_exchange();
  void finish_small();
  void start_transfer();
  void plan_transfer(Pipeline::Buffers& buffers);
  void plan_reduction(Pipeline::Buffers& buffers);
  void plan_all_to_all(Pipeline::Buffers& buffers);
  void plan_gather(const Pipeline::Buffers& buffers);
  void plan_scatter(const Pipeline::Buffers& buffers);
  void finish_transfer();
  void finish_alone();
  void pass_turns();
  void plan_hosts();
  void plan_wide();
  void start_wide_across();
  void finish_across();
  bool advance_scatter();
  bool advance_gather();
  std::string waited_for() const;
  std::string members_who(const Notes& notes, Attendance answer) const;
  std::string waited_for_in_hierarchy() const;
  void start_inside(SharedGroup& set);
  void stage_inside();
  bool advance_inside();
  std::string waited_for_inside() const;
  void pack();
  void unpack();
  uint64_t split_checksum() const;
  bool splits_fit() const;
  void start_explaining();
  void finish_explaining();
  bool small() const { return !block_bytes_.empty() && call_.signature.kind != CollectiveKind::kAllToAllV; }
  Reduction reduction() const;
  void raise_error() const;

  HostEngine& engine_;
  const HostGroup& group_;
  std::vector<HostCollective*>& idle_;
  Stage stage_ = Stage::kIdle;
  HostCall call_;
  int64_t chunk_bytes_ = 0;
  Clock::time_point deadline_;
  const CostModel* costs_ = nullptr;
  std::vector<int64_t> counts_;
  std::vector<int64_t> receive_counts_;
  std::vector<SpanPair> pairs_;
  std::vector<std::byte> staging_;  // of a group, or of an input that the output overwrites
  uint64_t checksum_ = 0;           // of this rank's part of an all_to_all_v
  std::vector<int64_t> splits_;     // of all ranks, when they do not fit
  ReduceAlgorithm algorithm_ = ReduceAlgorithm::kExchange;
  std::vector<int64_t> block_bytes_;
  std::vector<const void*> blocks_;
  std::string mismatch_;
  bool memory_lost_ = false;
  Exchange exchange_;
  Pipeline pipeline_;

  // Through a hierarchy.
  Hierarchy* hierarchy_ = nullptr;
  std::vector<int64_t> shards_;  // elements, by local index
  ConstSpan whole_in_;
  Span whole_out_;
  Span shard_;
  bool halves_ = false;              // 16-bit floats: sums travel as float until they are complete
  std::vector<float> wide_;          // the whole input
  std::vector<int64_t> host_parts_;  // of the shard, by host
  bool phase_started_ = false;
  std::optional<SharedCollective> scatter_;
  std::optional<SharedCollective> gather_;

  // Among ranks that share memory.
  std::optional<SharedCollective> inside_;
};

}  // namespace rondo
