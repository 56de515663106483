#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/tensor/step_state.h"

namespace rondo {

// The device's StepState, and the ring of host slots from which it is set in front of each step.
class StateUpload {
 public:
  // `slots` steps may be underway before the host has to wait for the oldest.
  StateUpload(Device& device, int slots);

  // Work queued on the stream from here on finds this state in device().
  void send(Stream& stream, const StepState& state);
  StepState* device() const { return memory_.as<StepState>(); }

 private:
  struct Slot {
    Buffer memory;
    std::unique_ptr<Event> copied;
  };
  Buffer memory_;
  std::vector<Slot> slots_;
  int64_t sent_ = 0;
};

}  // namespace rondo
