#include "runtime/comm/shared/work.h"

#include <fmt/core.h>

#include <cstring>
#include <ctime>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/comm/shared/engine.h"
#include "runtime/comm/shared/world.h"

namespace rondo {
namespace {

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// A deadline need not know the microsecond, and this costs a fifth of the exact time.
SharedWork::Clock::time_point about_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return SharedWork::Clock::time_point(std::chrono::seconds(time.tv_sec) +
                                       std::chrono::nanoseconds(time.tv_nsec));
}

}  // namespace

SharedWork::SharedWork(SharedEngine& engine, SharedGroup& group, const Topology& topology,
                       std::vector<SharedWork*>& idle)
    : engine_(engine), group_(group), topology_(topology), idle_(idle), collective_(group) {}

void SharedWork::start(const SharedRequest& request) {
  after_ = request.after;
  limit_ = request.deadline;
  deadline_ = about_now() + limit_;
  mismatch_.clear();
  if (!request.pairs.empty() || !pairs_.empty()) pairs_.assign(request.pairs.begin(), request.pairs.end());
  overwritten_ = {};
  // The group keeps the order of the calls, whatever they wait for.
  const bool in_place = request.call.in.data == request.call.out.data;
  if (!pairs_.empty() || (request.call.transfer == Transfer::kAllToAll && in_place)) {
    start_staged(request.call);
  } else {
    collective_.start(request.call);
  }
  stage_ = Stage::kAfter;
  over_.store(false, std::memory_order_relaxed);
}

void SharedWork::start_staged(SharedCall call) {
  if (pairs_.empty()) overwritten_ = call.in;
  const int64_t bytes = pairs_.empty() ? call.in.bytes() : call.signature.bytes();
  if (static_cast<int64_t>(staging_.size()) < bytes) staging_.resize(static_cast<size_t>(bytes));
  call.in = {staging_.data(), bytes / dtype_size(call.in.dtype), call.in.dtype};
  if (!pairs_.empty()) call.out = {staging_.data(), call.in.count, call.in.dtype};
  collective_.start(call);
}

void SharedWork::end(Stage stage) {
  stage_ = stage;
  over_.store(true, std::memory_order_release);
}

void SharedWork::stage_input() {
  copy(staging_.data(), overwritten_.data, overwritten_.bytes());
  std::byte* to = staging_.data();
  for (const SpanPair& pair : pairs_) {
    copy(to, pair.in.data, pair.in.bytes());
    to += pair.in.bytes();
  }
}

bool SharedWork::advance() {
  bool moved = false;
  if (stage_ == Stage::kAfter && (after_ == nullptr || after_->happened())) {
    stage_input();
    stage_ = Stage::kRunning;
    moved = true;
  }
  if (stage_ != Stage::kRunning) return moved;
  moved = collective_.advance() || moved;
  if (collective_.over()) finish();
  return moved;
}

void SharedWork::finish() {
  if (collective_.differs()) {
    mismatch_ = collective_.mismatch(topology_);
    return end(Stage::kFailed);
  }
  const std::byte* from = staging_.data();
  for (const SpanPair& pair : pairs_) {
    copy(pair.out.data, from, pair.out.bytes());
    from += pair.out.bytes();
  }
  end(Stage::kDone);
}

std::string SharedWork::waited_for() const {
  std::string ranks;
  for (int r = 0; r < group_.size(); ++r) {
    if (!collective_.waits_for(r)) continue;
    ranks += (ranks.empty() ? "" : ", ") + rank_name(topology_, r);
  }
  if (ranks.empty()) return "an earlier collective had to end first";
  return fmt::format("waited for {} to {}", ranks, collective_.everybody_called() ? "go on" : "call it");
}

void SharedWork::check(Clock::time_point now) const {
  if (over()) return;
  if (overdue(now)) {
    raise<PeerError>("{} of {} bytes was not done within {} ms: {}", call_name(collective_.signature()),
                     collective_.signature().bytes(), limit_.count(),
                     stage_ == Stage::kAfter ? "its input was not ready" : waited_for());
  }
  if (stage_ != Stage::kRunning) return;
  for (int r = 0; r < group_.size(); ++r) {
    if (!group_.world().has_left(group_.world_ranks()[static_cast<size_t>(r)]) || !collective_.waits_for(r))
      continue;
    raise<PeerError>("{} of {} bytes waited for {}, which has ended its communicator",
                     call_name(collective_.signature()), collective_.signature().bytes(),
                     rank_name(topology_, r));
  }
}

void SharedWork::fail() {
  if (!over()) end(Stage::kFailed);
}

void SharedWork::raise_error() const {
  if (stage_ != Stage::kFailed) return;
  if (!mismatch_.empty()) throw MismatchError(mismatch_);
  throw PeerError(engine_.failure());
}

bool SharedWork::ready() {
  if (!over()) engine_.drive_once();
  if (!over()) return false;
  raise_error();
  return true;
}

void SharedWork::wait() {
  if (!over()) engine_.drive(*this);
  raise_error();
}

void SharedWork::order_before(Stream&) {
  wait();
}

void SharedWork::release() {
  const std::lock_guard lock(engine_.lock());
  stage_ = Stage::kIdle;
  idle_.push_back(this);
}

}  // namespace rondo
