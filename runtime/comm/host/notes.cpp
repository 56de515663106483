#include "runtime/comm/host/notes.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/comm/host/group.h"
#include "runtime/comm/mpi/mpi_check.h"

namespace rondo {
namespace {

// Ranks by local index, then host: neighbours run on different hosts.
std::vector<int> ring_over_hosts(const Topology& topology) {
  std::vector<int> local(topology.host_of.size());
  std::vector<int> seen(static_cast<size_t>(topology.hosts()), 0);
  for (size_t r = 0; r < local.size(); ++r) local[r] = seen[static_cast<size_t>(topology.host_of[r])]++;
  std::vector<int> ring(local.size());
  std::iota(ring.begin(), ring.end(), 0);
  std::stable_sort(ring.begin(), ring.end(), [&](int a, int b) {
    return std::pair(local[static_cast<size_t>(a)], topology.host_of[static_cast<size_t>(a)]) <
           std::pair(local[static_cast<size_t>(b)], topology.host_of[static_cast<size_t>(b)]);
  });
  return ring;
}

}  // namespace

Notes::Notes(MPI_Comm comm, int tag, int64_t nonce, const Topology& topology, int rank,
             std::chrono::milliseconds heartbeat)
    : comm_(comm),
      tag_(tag),
      nonce_(nonce),
      topology_(topology),
      heartbeat_(heartbeat),
      next_beat_(Clock::now() + heartbeat),
      outgoing_(topology.host_of.size() + 16) {
  const std::vector<int> ring = ring_over_hosts(topology);
  const size_t size = ring.size();
  const auto own = static_cast<size_t>(std::find(ring.begin(), ring.end(), rank) - ring.begin());
  watched_ = ring[(own + size - 1) % size];
  watcher_ = ring[(own + 1) % size];
  listen();
}

void Notes::listen() {
  check_mpi(
      MPI_Irecv(&incoming_, sizeof(incoming_), MPI_BYTE, MPI_ANY_SOURCE, tag_, comm_, &incoming_request_),
      "MPI_Irecv of a note");
}

void Notes::check(Clock::time_point now) {
  for (;;) {
    int arrived = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&incoming_request_, &arrived, &status), "MPI_Test of a note");
    if (arrived == 0) break;
    const Note note = incoming_;
    listen();
    if (note.nonce == nonce_) take(note, status.MPI_SOURCE);
  }
  if (now < next_beat_) return;
  next_beat_ = now + heartbeat_;
  send(watcher_, {.nonce = nonce_, .kind = Kind::kBeat});
  if (watched_has_left_ || ++silent_beats_ <= kBeatsOfSilence) return;
  raise<PeerError>(
      "no sign of life from {} for {} ms: it was stopped, or its host or the network between failed",
      rank_name(topology_, watched_), (heartbeat_ * kBeatsOfSilence).count());
}

void Notes::take(const Note& note, int from) {
  if (from == watched_) silent_beats_ = 0;
  switch (note.kind) {
    case Kind::kBeat:
      return;
    case Kind::kLeaving:
      watched_has_left_ = watched_has_left_ || from == watched_;
      return;
    case Kind::kQuestion: {
      const auto context = static_cast<size_t>(note.context);
      const bool called = context < calls_.size() && note.sequence < calls_[context];
      Note answer = note;
      answer.kind = Kind::kAnswer;
      answer.value = called ? 1 : 0;
      return send(from, answer);
    }
    case Kind::kAnswer:
      if (asking(note.context, note.sequence)) {
        answers_[static_cast<size_t>(from)] = note.value != 0 ? Attendance::kCalled : Attendance::kNotYet;
      }
      return;
  }
}

void Notes::send(int to, const Note& note) {
  for (Outgoing& place : outgoing_) {
    int done = 1;
    if (place.request != MPI_REQUEST_NULL) {
      check_mpi(MPI_Test(&place.request, &done, MPI_STATUS_IGNORE), "MPI_Test of a note");
    }
    if (done == 0) continue;
    place.note = note;
    check_mpi(MPI_Isend(&place.note, sizeof(place.note), MPI_BYTE, to, tag_, comm_, &place.request),
              "MPI_Isend of a note");
    return;
  }
  // All are stuck, so the transport is; a note more would not get through either.
}

void Notes::called(int context, int64_t sequence) {
  if (calls_.size() <= static_cast<size_t>(context)) calls_.resize(static_cast<size_t>(context) + 1, 0);
  calls_[static_cast<size_t>(context)] = sequence + 1;
}

void Notes::ask(const HostGroup& group, int64_t sequence) {
  asked_context_ = group.context;
  asked_sequence_ = sequence;
  answers_.assign(topology_.host_of.size(), Attendance::kCalled);
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank) continue;
    const int world_rank = group.world_ranks[static_cast<size_t>(r)];
    answers_[static_cast<size_t>(world_rank)] = Attendance::kUnknown;
    send(world_rank,
         {.nonce = nonce_, .sequence = sequence, .context = group.context, .kind = Kind::kQuestion});
  }
}

bool Notes::all_answered() const {
  return std::find(answers_.begin(), answers_.end(), Attendance::kUnknown) == answers_.end();
}

bool Notes::leave() noexcept {
  try {
    send(watcher_, {.nonce = nonce_, .kind = Kind::kLeaving});
  } catch (...) {
    // Then the watcher finds out by the silence.
  }
  bool safe = abandon_receive(incoming_request_);
  for (Outgoing& place : outgoing_) safe = abandon_send(place.request) && safe;
  return safe;
}

}  // namespace rondo
