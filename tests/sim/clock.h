// Vector clocks: what has happened before what. One component a stream, counting the operations queued on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rondo::sim {

// An operation: the tick-th one of a stream.
struct Stamp {
  uint32_t stream = 0;
  uint64_t tick = 0;
};

class Clock {
 public:
  bool covers(Stamp stamp) const {
    return stamp.stream < ticks_.size() && ticks_[stamp.stream] >= stamp.tick;
  }
  void advance(Stamp stamp) {
    if (ticks_.size() <= stamp.stream) ticks_.resize(stamp.stream + 1);
    ticks_[stamp.stream] = std::max(ticks_[stamp.stream], stamp.tick);
  }
  void join(const Clock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
    for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }

 private:
  std::vector<uint64_t> ticks_;
};

}  // namespace rondo::sim
