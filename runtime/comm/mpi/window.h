// Memory that MPI lets the processes of one host share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rondo {

class MpiSession;

// Collective among these ranks of MPI_COMM_WORLD, which must lie on one host; this rank is one of them.
// Zeroed, at the same offset in a page on all of them. Lives until MPI ends: a window is freed by all of its
// ranks together, and they have no such moment. Throws PeerError with MPI's text when there is none to be
// had.
std::byte* allocate_window(MpiSession& session, std::span<const int> ranks, int64_t bytes);

}  // namespace rondo
