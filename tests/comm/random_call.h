// One collective call with random arguments, and what a serial run of its definition gives.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "tests/comm/values.h"

namespace rondo {

class RandomCall {
 public:
  // `random` is in the same state on all ranks of the set, of which this is `rank`.
  RandomCall(std::mt19937_64& random, int rank, int size);

  Work start(Communicator& comm);
  // After its end: every element of the result, and what lies around the buffers.
  void check();
  std::string text() const;

 private:
  enum class Kind : uint8_t {
    kAllReduce,
    kGroup,
    kReduceScatter,
    kBroadcast,
    kAllGather,
    kAllToAll,
    kGather,
    kScatter,
    kBarrier
  };

  int64_t before(int rank) const;
  int64_t own() const { return counts_[static_cast<size_t>(rank_)]; }
  int64_t sent(int from, int to) const;
  double input(int rank, int64_t i) const;
  double reduced(int64_t i) const;
  double moved(int from, int to, int64_t i) const;
  void fill();
  std::vector<double> expected() const;
  Work start_all_to_all(Communicator& comm);

  int rank_;
  int size_;
  Kind kind_ = Kind::kBarrier;
  DType dtype_ = DType::kF32;
  ReduceOp op_ = ReduceOp::kSum;
  int root_ = 0;
  bool in_place_ = false;
  uint64_t key_ = 0;             // of the values
  std::vector<int64_t> counts_;  // of the ranks' blocks
  Guarded in_;
  Guarded out_;
};

}  // namespace rondo
