#include "runtime/train/state_upload.h"

namespace rondo {

StateUpload::StateUpload(Device& device, int slots) : memory_(device.allocate(sizeof(StepState))) {
  for (int i = 0; i < slots; ++i) slots_.push_back(device.allocate_host(sizeof(StepState)));
}

void StateUpload::send(Stream& stream, const StepState& state) {
  const Buffer& slot = slots_[static_cast<size_t>(sent_++) % slots_.size()];
  *slot.as<StepState>() = state;
  stream.copy(memory_.data(), slot.data(), sizeof(StepState));
}

}  // namespace rondo
