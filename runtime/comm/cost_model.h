// What messages cost, and which algorithm that makes the fastest.
//
// A message of n bytes takes latency + n / bandwidth (Hockney's model, Parallel Computing 1994). The defaults
// fit messages and shared memory within a host, and a 10 Gb/s Ethernet between hosts; a measurement may
// replace them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

struct Topology;

struct LinkCost {
  double latency_us = 0;      // of a message, from call to call
  double bytes_per_us = 0;    // of one host's link, or one rank's copies
  double crossing_share = 1;  // of the bandwidth, when a rank talks to all others at once
};

struct CostModel {
  LinkCost inside{.latency_us = 2, .bytes_per_us = 2000, .crossing_share = 1};
  LinkCost shared{.latency_us = 10, .bytes_per_us = 4000, .crossing_share = 1};  // a reduction in a segment
  LinkCost between{.latency_us = 40, .bytes_per_us = 1200, .crossing_share = 0.85};

  // In shared memory: spans up to this long are copied into letters, of which every rank reduces all; longer
  // ones are reduced where they lie.
  int64_t letter_bytes = 2 << 10;

  // All numbers by their names, such as "between.latency_us".
  struct Value {
    std::string name;
    double value = 0;
  };
  std::vector<Value> values() const;
  // Throws InvalidArgument for an unknown name, and a value that is not a positive number.
  void set(std::string_view name, double value);
};

// How a reduction over all ranks is done.
enum class ReduceAlgorithm : uint8_t {
  kExchange,  // everybody's input to everybody, log2 P steps
  kDirect,    // each segment to its owner, its sum back to all
  kRing,      // neighbour to neighbour
  kHosts,     // within each host, between the hosts, within each host
};

struct ReduceShape {
  int ranks = 1;
  int hosts = 1;
  int most_on_a_host = 1;  // ranks
  int64_t bytes = 0;       // of one rank's input
  bool exchange_fits = false;
  bool hosts_share = false;  // all hosts have as many ranks, which share memory
  bool rounds_once = false;  // 16-bit floats: a ring would round between additions
};

// A pure function of its arguments, so all ranks choose alike.
ReduceAlgorithm choose_all_reduce(const CostModel& model, const ReduceShape& shape);

}  // namespace rondo
