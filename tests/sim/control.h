// What tests may ask of the double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::sim {

// How often things have happened in this process.
struct Counters {
  int64_t kernels = 0;  // kernels, library calls and collectives queued, those of launched graphs too
  int64_t copies = 0;
  int64_t pageable_copies = 0;  // of those, with memory that is not pinned: they stage, and may block
  int64_t host_waits = 0;       // calls that block the host until a device is done
  int64_t allocations = 0;      // of device memory
  int64_t graph_launches = 0;
  int64_t launches = 0;  // of kernels, one by one: not by graphs, not into a capture
};

Counters counters();
void seed_delays(uint64_t seed);
// The n-th allocation from now on (a graph that is made ready counts as one) fails.
void fail_allocation(int64_t n);
// What is still there: allocations, streams, events, communicators. Empty when nothing is.
std::string leftovers();
// Devices whose context this process has made.
std::vector<int> touched_devices();

}  // namespace rondo::sim

// The same for tests that load the module, found with dlsym. The text is the caller's until its next call.
extern "C" {
void rondo_sim_seed_delays(uint64_t seed);
void rondo_sim_fail_allocation(int64_t n);
void rondo_sim_counters(rondo::sim::Counters* counters);
const char* rondo_sim_leftovers();
}
