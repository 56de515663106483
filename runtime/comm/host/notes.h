// Short messages between the engines of a world, beside the collectives: signs of life, and questions about
// who has come to a collective.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace rondo {

struct HostGroup;

// Answers of the ranks to "have you called that one?".
enum class Attendance : uint8_t { kUnknown, kCalled, kNotYet };

// All functions need the session's lock. Each rank sends a beat to one other and expects one from another, in
// a ring in which neighbours run on different hosts where possible; so every rank is watched by one. Time is
// counted in beats of its own: a rank that was stopped itself does not blame others when it goes on.
class Notes {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kBeatsOfSilence = 7;

  // `comm` is this object's alone, with errors returned; `nonce` is equal on all ranks and differs between
  // worlds that follow each other on one communicator number.
  Notes(MPI_Comm comm, int tag, int64_t nonce, const Topology& topology, int rank,
        std::chrono::milliseconds heartbeat);

  // Takes what has come, answers, sends a beat when it is time. Throws PeerError when the watched rank has
  // been silent for too long, or MPI fails.
  void check(Clock::time_point now);
  // This rank's n-th collective of a group was called, n counted from 0.
  void called(int context, int64_t sequence);

  // Asks the group's other ranks whether they have called that collective.
  void ask(const HostGroup& group, int64_t sequence);
  bool asking(int context, int64_t sequence) const {
    return !answers_.empty() && context == asked_context_ && sequence == asked_sequence_;
  }
  bool all_answered() const;
  Attendance answer_of(int world_rank) const { return answers_[static_cast<size_t>(world_rank)]; }

  // Tells the watcher that this rank ends in good order, and gives up what is posted. Returns false when MPI
  // may still use this object's memory.
  bool leave() noexcept;

 private:
  enum class Kind : int32_t { kBeat, kLeaving, kQuestion, kAnswer };
  struct Note {
    int64_t nonce = 0;
    int64_t sequence = 0;
    int32_t context = 0;
    Kind kind = Kind::kBeat;
    int64_t value = 0;
  };
  struct Outgoing {
    Note note;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void listen();
  void take(const Note& note, int from);
  void send(int to, const Note& note);

  MPI_Comm comm_;
  int tag_;
  int64_t nonce_;
  const Topology& topology_;
  int watched_ = 0;
  int watcher_ = 0;
  std::chrono::milliseconds heartbeat_;
  Clock::time_point next_beat_;
  int silent_beats_ = 0;
  bool watched_has_left_ = false;
  Note incoming_;
  MPI_Request incoming_request_ = MPI_REQUEST_NULL;
  std::vector<Outgoing> outgoing_;
  std::vector<int64_t> calls_;  // by context: how many were called
  int asked_context_ = 0;
  int64_t asked_sequence_ = 0;
  std::vector<Attendance> answers_;  // by world rank; empty: nothing was asked
};

}  // namespace rondo
