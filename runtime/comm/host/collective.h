// One collective in flight over MPI: a small state machine that somebody drives.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/exchange.h"
#include "runtime/comm/host/group.h"
#include "runtime/comm/host/pipeline.h"
#include "runtime/comm/signature.h"

namespace rondo {

class HostEngine;

// The arguments of a call.
struct HostCall {
  Signature signature;
  ConstSpan in;
  Span out;
  std::span<const int64_t> counts = {};  // all_gather_v
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

  void start(const HostCall& call, int64_t chunk_bytes);

  // Goes on as far as possible without waiting; true when anything moved. Throws PeerError.
  bool advance();
  bool over() const { return stage_ == Stage::kDone || stage_ == Stage::kFailed; }
  bool in_flight() const { return stage_ != Stage::kIdle && !over(); }
  bool overdue(Clock::time_point now) const { return !over() && now > deadline_; }
  // "all_reduce #12 "grads/3" of 4000 bytes was not done within 5000 ms: waited for rank 3 (node7)".
  std::string overdue_text() const;
  // Ends it with the engine's failure.
  void fail();
  // After a failure: MPI may still use this object's buffers, so it must never be destroyed.
  bool memory_lost() const { return memory_lost_; }

  bool ready() override;
  void wait() override;
  void order_before(Stream& stream) override;
  void release() override;

 private:
  enum class Stage : uint8_t { kIdle, kAfter, kExchange, kTransfer, kDone, kFailed };

  void start_exchange();
  void finish_exchange();
  void start_transfer();
  void finish_small();
  bool small() const { return !block_bytes_.empty(); }
  void raise_error() const;

  HostEngine& engine_;
  const HostGroup& group_;
  std::vector<HostCollective*>& idle_;
  Stage stage_ = Stage::kIdle;
  HostCall call_;
  int64_t chunk_bytes_ = 0;
  Clock::time_point deadline_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> block_bytes_;
  std::vector<const void*> blocks_;
  std::string mismatch_;
  bool memory_lost_ = false;
  Exchange exchange_;
  Pipeline pipeline_;
};

}  // namespace rondo
