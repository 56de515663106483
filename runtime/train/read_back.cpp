#include "runtime/train/read_back.h"

#include "runtime/base/error.h"

namespace rondo {

ReadBack::ReadBack(Device& device, int64_t bytes, int slots)
    : bytes_(bytes), slots_(static_cast<size_t>(slots)) {
  for (Slot& each : slots_) {
    each.memory = device.allocate_host(bytes);
    each.there = device.make_event();
  }
}

void ReadBack::send(Stream& stream, std::span<const Piece> pieces) {
  RONDO_CHECK(underway() < static_cast<int>(slots_.size()));
  Slot& to = slot(sent_++);
  for (const Piece& piece : pieces) {
    RONDO_CHECK(piece.offset + piece.bytes <= bytes_);
    stream.copy(to.memory.as<std::byte>() + piece.offset, piece.data, piece.bytes);
  }
  stream.record(*to.there);
}

const std::byte* ReadBack::receive() {
  RONDO_CHECK(underway() > 0);
  Slot& from = slot(received_++);
  from.there->synchronize();
  return from.memory.as<std::byte>();
}

}  // namespace rondo
