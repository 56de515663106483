// The members of a communicator over MPI, and non-blocking messages between them.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace rondo {

// All groups of an engine share one MPI communicator; a group's context number, in the upper bits of its
// tags, keeps its messages apart. Making a group therefore needs no MPI call, which could block.
struct HostGroup {
  MPI_Comm mpi = MPI_COMM_NULL;
  std::vector<int> world_ranks;  // by rank in the group
  int rank = 0;
  Topology topology;
  int context = 0;
  int most_on_a_host = 1;          // ranks
  std::vector<int> shown_as = {};  // a part of a group: its ranks' numbers in the whole, for messages

  int size() const { return static_cast<int>(world_ranks.size()); }
  std::string name_of(int member) const;  // "rank 3 (node7)"
};

// The layout of a tag, from the top: context, sequence number modulo 2^12, one bit for the phase. Messages
// between two ranks with the same tag stay in order, and no more than kMaxInFlight collectives are in flight
// at once, so the wrap-around of the sequence number cannot mix two of them up.
inline constexpr int kSequenceBits = 12;
inline constexpr int64_t kMaxInFlight = 1024;
inline constexpr int kExchangePhase = 0;
inline constexpr int kTransferPhase = 1;

inline int make_tag(int context, int64_t sequence, int phase) {
  const auto low = static_cast<int>(sequence & ((int64_t{1} << kSequenceBits) - 1));
  return (((context << kSequenceBits) | low) << 1) | phase;
}

// Of the host with the most of them.
int most_ranks_on_a_host(const Topology& topology);

// Each throws PeerError with MPI's text and the peer's name. `bytes` is at most INT_MAX.
void start_send(const HostGroup& group, const void* data, int64_t bytes, int peer, int tag,
                MPI_Request& request);
void start_receive(const HostGroup& group, void* data, int64_t bytes, int peer, int tag,
                   MPI_Request& request);
// True when the request is over (or was none); `received` then holds the bytes that came, where asked for.
bool test(const HostGroup& group, MPI_Request& request, int peer, int64_t* received = nullptr);

// Gives up a request of a broken transport. Returns false when MPI may still use the message's memory.
bool abandon_receive(MPI_Request& request) noexcept;
bool abandon_send(MPI_Request& request) noexcept;

}  // namespace rondo
