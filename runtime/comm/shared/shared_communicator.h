// Collectives among the ranks of one host, through memory that they share.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/shared/mapping.h"

namespace rondo {

class Bootstrap;
class Communicator;
class Device;
struct Topology;

struct SharedOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);  // of a collective, from its call
  bool progress_thread = false;
  int64_t letter_bytes = 2 << 10;  // see CostModel; the first rank's counts
  Passing passing = Passing::kAuto;
  std::shared_ptr<SharedWindows> windows = nullptr;  // where descriptors cannot be passed
};

// The communicator of all ranks of `topology`, which lie on one host. Collective among `ranks`, which is
// needed during the call only. `device` (a host device) must outlive the communicator; `keep` lives as long
// as it and all that are split from it. One thread at a time uses a communicator and those split from it.
// Throws on every rank or on none: Unavailable when they cannot share memory, DeviceError when there is none.
//
// Spans of more than letter_bytes in memory from allocate() are reduced and copied where they lie, in one
// pass: each rank reduces its share of all buffers and writes it to all of them. Other spans of up to 32 KiB
// go beside the signature and cost one meeting of the ranks; the rest flows through slots that fit the cache.
// Sums run in rank order.
//
// Waiting: polls for some 20 microseconds (not where ranks outnumber cores), gives the core away between
// polls for 80, then sleeps until a rank rings.
//
// Every rank's watchdog thread looks at the others' heartbeats: a rank that died is noticed in half a second,
// one that was stopped in six. The first failure of any rank ends the world of all.
std::unique_ptr<Communicator> make_shared_communicator(Bootstrap& ranks, const Topology& topology,
                                                       Device& device, const SharedOptions& options = {},
                                                       std::shared_ptr<void> keep = nullptr);

}  // namespace rondo
