#pragma once

#include <algorithm>
#include <cstdint>

namespace rondo::cpu {

// Calls body(begin, end) over consecutive ranges of [0, count), each of `grain` items but the last. Ranges do
// not depend on the number of threads. No thread is started for one thread or one range.
template <class Body>
void parallel_ranges(int threads, int64_t count, int64_t grain, const Body& body) {
  const int64_t ranges = (count + grain - 1) / grain;
  if (threads <= 1 || ranges <= 1) {
    for (int64_t r = 0; r < ranges; ++r) body(r * grain, std::min(count, (r + 1) * grain));
    return;
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t r = 0; r < ranges; ++r) body(r * grain, std::min(count, (r + 1) * grain));
}

// Below this many floats another thread does not pay.
constexpr int64_t kFloatGrain = 32768;

}  // namespace rondo::cpu
