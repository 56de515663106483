#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device/device.h"

namespace rondo {

// Small results of queued work on their way to the host. They are copied behind the work into a ring of
// slots, and read in the same order when their turn comes: the host blocks only for a result whose work is
// not done.
class ReadBack {
 public:
  // Results of `bytes` each, of which `slots` may be underway.
  ReadBack(Device& device, int64_t bytes, int slots);

  struct Piece {
    const void* data = nullptr;  // memory of the device
    int64_t bytes = 0;
    int64_t offset = 0;  // in the result
  };
  // Queues the copy of one result. Its memory may be written again by later work on the stream.
  void send(Stream& stream, std::span<const Piece> pieces);
  int underway() const { return static_cast<int>(sent_ - received_); }
  // The oldest result underway, valid until the next send().
  const std::byte* receive();

 private:
  struct Slot {
    Buffer memory;
    std::unique_ptr<Event> there;
  };
  Slot& slot(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  int64_t bytes_;
  std::vector<Slot> slots_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

}  // namespace rondo
