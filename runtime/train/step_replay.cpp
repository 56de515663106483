#include "runtime/train/step_replay.h"

#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/topology.h"
#include "runtime/train/network.h"
#include "runtime/train/trainer_state.h"

namespace rondo {
namespace {

// Of full batches, one for each place: algorithms that are chosen, and connections that are made, by a first
// call are there when the first step is captured.
constexpr int kQueuedFirst = 2;

}  // namespace

StepReplay::StepReplay(TrainerState& state, const Options& options)
    : state_(state),
      full_rows_(options.full_rows),
      on_(options.wanted && !state.device().host_accessible() && state.comm.capturable()) {}

StepReplay::~StepReplay() = default;

void StepReplay::run(const DeviceBatch& input, const std::function<void()>& queue) {
  if (!on_ || input.share.global_rows != full_rows_) return queue();
  if (queued_ < kQueuedFirst) {
    ++queued_;
    return queue();
  }
  if (find(input) == nullptr && !capture(input, queue)) return queue();
  state_.comm.launch(*find(input), *state_.stream);
}

CapturedWork* StepReplay::find(const DeviceBatch& input) const {
  for (const Place& place : places_) {
    if (place.input == input.batch.inputs[0].data) return place.step.get();
  }
  return nullptr;
}

bool StepReplay::capture(const DeviceBatch& input, const std::function<void()>& queue) {
  Place place{.input = input.batch.inputs[0].data, .step = nullptr, .memory = {}};
  std::string why;
  if (std::optional<std::vector<Buffer>> memory = state_.network.replay_memory()) {
    place.memory = std::move(*memory);
    try {
      place.step = record(queue);
      if (place.step == nullptr) why = "the device cannot capture work";
    } catch (const DeviceError& error) {
      why = error.what();
    }
  } else {
    why = "the network's passes cannot be captured";
  }
  // What one rank replays and another queues would be the same collectives, but not the same to NCCL.
  int32_t captured = place.step != nullptr ? 1 : 0;
  const Span span = span_of(std::span(&captured, 1));
  state_.comm.host().all_reduce(span, span, ReduceOp::kMin, {.label = "captured steps"}).wait();
  if (captured != 0) {
    places_.push_back(std::move(place));
    return true;
  }
  if (!why.empty()) {
    fmt::print(stderr, "{}: steps are queued kernel by kernel, not replayed: {}\n",
               rank_name(state_.comm.topology(), state_.comm.rank()), why);
  }
  give_up();
  return false;
}

// Null where the device cannot. A failure leaves nothing of the step behind.
std::unique_ptr<CapturedWork> StepReplay::record(const std::function<void()>& queue) {
  const std::unique_ptr<Capture> capture = state_.device().capture(*state_.stream);
  if (capture == nullptr) return nullptr;
  try {
    queue();
  } catch (...) {
    state_.sync->abandon();
    throw;
  }
  return capture->end();
}

void StepReplay::give_up() {
  on_ = false;
  if (!places_.empty()) state_.stream->synchronize();  // before what runs goes
  places_.clear();
}

}  // namespace rondo
