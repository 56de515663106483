// Collectives on host memory over MPI point-to-point messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/cost_model.h"
#include "runtime/comm/shared/mapping.h"

namespace rondo {

class Communicator;
class Device;
class MpiSession;
struct Topology;

enum class Progress : uint8_t {
  kAuto,    // a thread when there is a spare core or a network, see wants_progress_thread
  kInline,  // collectives advance only while a caller waits, polls or calls progress()
  kThread,  // a thread lets them advance beside the caller's work
};

struct HostOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);  // of a collective, from its call
  Progress progress = Progress::kAuto;
  bool shared_memory = true;         // among the ranks of one host, where they can; else messages over MPI
  Passing passing = Passing::kAuto;  // how they come to share it
  int compute_threads = 1;           // cores that the caller's work keeps busy, for kAuto
  int64_t chunk_bytes = 0;  // size of a message in large collectives; 0: by the topology. Equal on all ranks
  CostModel costs = {};     // chooses the algorithms; rank 0's counts
  // Between signs of life of a rank; after seven without one it counts as lost.
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  // For tests: the host that each rank plays to run on; equal on all ranks, empty: the real ones.
  std::vector<std::string> hosts = {};
};

// The communicator of all ranks of the session. Collective over MPI_COMM_WORLD. `device` (a host device) must
// outlive it. One thread at a time uses a communicator and those split from it.
//
// Every collective first lets all ranks compare their calls, in log2(size) small messages; short ones (up to
// 32 KiB over all ranks) carry their data along and reduce in rank order. Longer ones run as pipelined rings
// (all_reduce, all_gather_v), chains (broadcast) or between pairs of ranks (all others; all_reduce where the
// cost model says so, and of 16-bit floats, whose sums are rounded once).
//
// Across hosts with the same number of ranks each, more than one, large reductions go by hosts: see
// hierarchy.h. Where all of its ranks lie on one host (all of the world's, or of a set that was split from a
// world on several) a communicator works through memory that they share: passed between them as a descriptor,
// else a window of MPI, else, with a remark in name(), messages.
//
// Waiting: polls for up to 80 microseconds (giving the core away where ranks outnumber cores), then sleeps 20
// microseconds at a time.
std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<MpiSession> session, Device& device,
                                                     const HostOptions& options = {});

// The rule of Progress::kAuto: with ranks on several hosts always; on one host when this process may use more
// cores than its share of the compute threads takes. `allowed` is the number of cores in the affinity mask,
// `online` the host's.
bool wants_progress_thread(const Topology& topology, int allowed, int online, int compute_threads);

}  // namespace rondo
