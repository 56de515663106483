#pragma once

#include <cstdint>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/tensor/step_state.h"

namespace rondo {

// The device's StepState, and the ring of host slots from which it is set in front of each step.
class StateUpload {
 public:
  // A slot is written again `slots` steps later: by then the caller has waited for work behind the earlier
  // step.
  StateUpload(Device& device, int slots);

  // Work queued on the stream from here on finds this state in device().
  void send(Stream& stream, const StepState& state);
  StepState* device() const { return memory_.as<StepState>(); }

 private:
  Buffer memory_;
  std::vector<Buffer> slots_;
  int64_t sent_ = 0;
};

}  // namespace rondo
