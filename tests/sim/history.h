// Who touched which bytes of an allocation last, and whether a new access is ordered behind them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/clock.h"

namespace rondo::sim {

struct Touch {
  Stamp stamp;                      // tick 0: nobody
  const char* operation = nullptr;  // for messages
};

enum class Conflict { kNone, kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };

class History {
 public:
  struct Clash {
    Conflict conflict = Conflict::kNone;
    Touch other;
    size_t first = 0;  // where the two meet, as offsets into the allocation
    size_t last = 0;
  };

  explicit History(size_t bytes, Touch birth) : segments_{{0, {bytes, birth, {}}}} {}

  // Enters an access to [first, last) by an operation that knows `before`, and returns the first clash.
  Clash read(size_t first, size_t last, const Touch& touch, const Clock& before);
  Clash write(size_t first, size_t last, const Touch& touch, const Clock& before);
  // Is every access so far known to `clock`?
  bool covered_by(const Clock& clock) const;

 private:
  struct Segment {
    size_t end = 0;
    Touch write;
    std::vector<Touch> reads;  // since that write, the last of each stream
  };
  using Segments = std::map<size_t, Segment>;

  Segments::iterator cut(size_t at);  // makes a segment start at `at`

  Segments segments_;  // by start, without gaps
};

}  // namespace rondo::sim
