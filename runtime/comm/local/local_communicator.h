// Ranks as threads of one process, for tests: every rank's communicator is used by its own thread. The
// reduction is done by the rank that arrives last, over all inputs in rank order, so the result does not
// depend on timing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rondo {

class Communicator;

struct LocalOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);  // of a wait
  std::vector<std::string> hosts =
      {};  // for each rank, the name of the host it plays; empty: all on this one
};

// The communicators of ranks 0 to size-1.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size,
                                                                    const LocalOptions& options = {});

// Runs rank_main on `size` threads, each with its rank's communicator, and joins them. When one throws, its
// message is published to the others, and the first exception is rethrown here. When `limit` passes, the
// ranks still waiting in a collective are failed; threads that hang elsewhere end the process, naming the
// ranks.
void run_ranks(int size, const std::function<void(Communicator&)>& rank_main,
               const LocalOptions& options = {}, std::chrono::milliseconds limit = std::chrono::seconds(60));

}  // namespace rondo
