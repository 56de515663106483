#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/train/batch_stream.h"

namespace rondo {

struct TrainerState;

// Queues training steps: at first kernel by kernel, which lets libraries set themselves up, then by replaying
// what was captured of one step, a capture for each place in which batches lie. Only steps of full batches
// are replayed.
//
// All ranks go over to replaying in the same step, or none does: where a capture fails on one, all queue
// their steps as before, and that rank says so once, on standard error.
class StepReplay {
 public:
  struct Options {
    bool wanted = true;
    int64_t full_rows = 0;  // of a full batch, over all ranks
  };
  StepReplay(TrainerState& state, const Options& options);
  ~StepReplay();

  // Has the work of one step queued on the trainer's stream: by `queue`, or by a replay of what that queued
  // before. Collective in the first steps of full batches.
  void run(const DeviceBatch& input, const std::function<void()>& queue);

 private:
  struct Place {
    const void* input = nullptr;
    std::unique_ptr<CapturedWork> step;
    std::vector<Buffer> memory;  // that the step uses
  };
  bool capture(const DeviceBatch& input, const std::function<void()>& queue);
  std::unique_ptr<CapturedWork> record(const std::function<void()>& queue);
  CapturedWork* find(const DeviceBatch& input) const;
  void give_up();

  TrainerState& state_;
  int64_t full_rows_;
  bool on_;
  int queued_ = 0;  // full steps, before the first capture
  std::vector<Place> places_;
};

}  // namespace rondo
