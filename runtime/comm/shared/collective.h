// One collective through shared memory: a small state machine that somebody drives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/shared/group.h"
#include "runtime/comm/signature.h"

namespace rondo {

// Belongs to one group and is used again and again, so that collectives allocate nothing. Whoever drives it
// (SharedWorld says how to wait) calls advance() until it is over.
class SharedCollective {
 public:
  explicit SharedCollective(SharedGroup& group);

  // The spans stay untouched until it is over.
  void start(const SharedCall& call);

  // Goes on as far as possible without waiting; true when anything moved. Must be called only after the
  // group's earlier collectives were started, and does nothing until they are over.
  bool advance();
  bool over() const;
  // After it is over: what the members called. When they differ, nothing was transferred.
  const Consensus& consensus() const { return consensus_; }

  // Members that this one waits for: they have not called it yet, or are still busy with it. For messages.
  bool waits_for(int rank) const;
  bool everybody_called() const;

 private:
  SharedGroup& group_;
  Consensus consensus_;
};

}  // namespace rondo
