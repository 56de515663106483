// A collective of a SharedCommunicator in flight.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/shared/collective.h"

namespace rondo {

class SharedEngine;

struct SharedRequest {
  SharedCall call;
  std::span<const SpanPair> pairs = {};  // all_reduce_group; read by start() only
  const Event* after = nullptr;
  std::chrono::milliseconds deadline{0};  // never 0
};

// Works live in their communicator's pool and keep their memory. Everything but the WorkState functions needs
// the engine's lock.
class SharedWork final : public WorkState {
 public:
  using Clock = std::chrono::steady_clock;

  SharedWork(SharedEngine& engine, SharedGroup& group, const Topology& topology,
             std::vector<SharedWork*>& idle);

  void start(const SharedRequest& request);
  bool advance();                                                      // true when anything moved
  bool over() const { return over_.load(std::memory_order_acquire); }  // needs no lock
  bool overdue(Clock::time_point now) const { return !over() && now > deadline_; }
  bool waits_for_event() const { return stage_ == Stage::kAfter; }
  // Throws PeerError when it is overdue, or waits for a rank that is gone.
  void check(Clock::time_point now) const;
  void fail();  // ends it with the engine's failure

  bool ready() override;
  void wait() override;
  void order_before(Stream& stream) override;
  void release() override;

 private:
  enum class Stage : uint8_t { kIdle, kAfter, kRunning, kDone, kFailed };

  void start_staged(SharedCall call);
  void stage_input();
  void finish();
  void end(Stage stage);
  void raise_error() const;
  std::string waited_for() const;

  SharedEngine& engine_;
  SharedGroup& group_;
  const Topology& topology_;
  std::vector<SharedWork*>& idle_;
  Stage stage_ = Stage::kIdle;
  std::atomic<bool> over_{false};
  const Event* after_ = nullptr;
  Clock::time_point deadline_;
  std::chrono::milliseconds limit_{0};
  ConstSpan overwritten_;  // an input that must be copied before its output is written
  std::vector<SpanPair> pairs_;
  std::vector<std::byte> staging_;  // of these two
  std::string mismatch_;
  SharedCollective collective_;
};

}  // namespace rondo
