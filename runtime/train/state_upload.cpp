#include "runtime/train/state_upload.h"

namespace rondo {

StateUpload::StateUpload(Device& device, int slots)
    : memory_(device.allocate(sizeof(StepState))), slots_(static_cast<size_t>(slots)) {
  for (Slot& slot : slots_) {
    slot.memory = device.allocate_host(sizeof(StepState));
    slot.copied = device.make_event();
  }
}

void StateUpload::send(Stream& stream, const StepState& state) {
  Slot& slot = slots_[static_cast<size_t>(sent_++) % slots_.size()];
  slot.copied->synchronize();
  *slot.memory.as<StepState>() = state;
  stream.copy(memory_.data(), slot.memory.data(), sizeof(StepState));
  stream.record(*slot.copied);
}

}  // namespace rondo
