#include "tests/sim/history.h"

#include <iterator>

namespace rondo::sim {
namespace {

bool ordered(const Touch& touch, const Clock& before) {
  return touch.stamp.tick == 0 || before.covers(touch.stamp);
}

}  // namespace

History::Segments::iterator History::cut(size_t at) {
  auto next = segments_.lower_bound(at);
  if (next != segments_.end() && next->first == at) return next;
  const auto whole = std::prev(next);
  if (whole->second.end <= at) return segments_.end();
  Segment right = whole->second;
  whole->second.end = at;
  return segments_.emplace_hint(next, at, std::move(right));
}

History::Clash History::read(size_t first, size_t last, const Touch& touch, const Clock& before) {
  Clash clash;
  const auto begin = cut(first);
  const auto end = cut(last);
  for (auto it = begin; it != end; ++it) {
    Segment& segment = it->second;
    if (clash.conflict == Conflict::kNone && !ordered(segment.write, before)) {
      clash = {Conflict::kReadAfterWrite, segment.write, it->first, segment.end};
    }
    bool found = false;
    for (Touch& read : segment.reads) {
      if (read.stamp.stream != touch.stamp.stream) continue;
      read = touch;
      found = true;
    }
    if (!found) segment.reads.push_back(touch);
  }
  return clash;
}

History::Clash History::write(size_t first, size_t last, const Touch& touch, const Clock& before) {
  Clash clash;
  const auto begin = cut(first);
  const auto end = cut(last);
  for (auto it = begin; it != end && clash.conflict == Conflict::kNone; ++it) {
    const Segment& segment = it->second;
    for (const Touch& read : segment.reads) {
      if (!ordered(read, before)) clash = {Conflict::kWriteAfterRead, read, it->first, segment.end};
    }
    if (!ordered(segment.write, before)) {
      clash = {Conflict::kWriteAfterWrite, segment.write, it->first, segment.end};
    }
  }
  segments_.erase(begin, end);
  segments_.emplace(first, Segment{last, touch, {}});
  return clash;
}

bool History::covered_by(const Clock& clock) const {
  for (const auto& [start, segment] : segments_) {
    if (!ordered(segment.write, clock)) return false;
    for (const Touch& read : segment.reads) {
      if (!ordered(read, clock)) return false;
    }
  }
  return true;
}

}  // namespace rondo::sim
