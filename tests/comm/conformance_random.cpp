// Random sequences of asynchronous collectives on several process sets at once, against a serial oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>

#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/random_call.h"

namespace rondo {
namespace {

// A process set as one rank sees it, and its calls: the same on all its ranks, in the same order.
struct RankSet {
  std::unique_ptr<Communicator> own;
  Communicator* comm = nullptr;
  std::mt19937_64 random;
  std::deque<RandomCall> calls;
  size_t started = 0;
};

std::vector<RankSet> make_sets(Communicator& world, uint64_t seed) {
  const int rank = world.rank();
  const int colors[][2] = {{rank % 2, -rank}, {rank / 2, rank}, {rank == 0 ? -1 : 7, (rank * 5) % 3}};
  std::vector<RankSet> sets(1);
  sets[0].comm = &world;
  sets[0].random.seed(seed);
  for (size_t s = 0; s < std::size(colors); ++s) {
    RankSet set;
    set.own = world.split(colors[s][0], colors[s][1]);
    if (set.own == nullptr) continue;
    set.comm = set.own.get();
    set.random.seed(seed * 100 + s * 10 + static_cast<uint64_t>(colors[s][0]));
    sets.push_back(std::move(set));
  }
  return sets;
}

// Every rank goes from set to set in an order of its own, and waits in another.
void run_batch(std::vector<RankSet>& sets, std::mt19937_64& own_order) {
  size_t left = 0;
  for (RankSet& set : sets) {
    set.calls.clear();
    set.started = 0;
    const size_t count = 1 + set.random() % 8;
    for (size_t i = 0; i < count; ++i) set.calls.emplace_back(set.random, set.comm->rank(), set.comm->size());
    left += count;
  }
  std::vector<Work> works;
  for (; left > 0; --left) {
    size_t s = own_order() % sets.size();
    while (sets[s].started == sets[s].calls.size()) s = (s + 1) % sets.size();
    works.push_back(sets[s].calls[sets[s].started++].start(*sets[s].comm));
    if (own_order() % 3 == 0) sets[s].comm->progress();
  }
  std::shuffle(works.begin(), works.end(), own_order);
  for (Work& work : works) work.wait();
  for (RankSet& set : sets) {
    for (RandomCall& call : set.calls) call.check();
  }
}

void run_seed(Communicator& comm, uint64_t seed, int batches) {
  SCOPED_TRACE("RONDO_TEST_SEED=" + std::to_string(seed));
  std::vector<RankSet> sets = make_sets(comm, seed);
  std::mt19937_64 own_order(seed + 1000u * static_cast<uint64_t>(comm.rank()));
  for (int batch = 0; batch < batches; ++batch) run_batch(sets, own_order);
}

void random_sequences(Communicator& comm) {
  run_seed(comm, 1, 15);
  // And one that nobody has tried before, or the one that is asked for.
  const char* asked = std::getenv("RONDO_TEST_SEED");
  auto seed =
      static_cast<int64_t>(asked != nullptr ? std::strtoull(asked, nullptr, 10) : std::random_device{}());
  comm.broadcast(span_of(std::span(&seed, 1)), 0).wait();
  if (comm.rank() == 0) {
    std::printf("RONDO_TEST_SEED=%lld repeats this sequence\n", static_cast<long long>(seed));
    std::fflush(stdout);
  }
  run_seed(comm, static_cast<uint64_t>(seed), 15);
}

constexpr ConformanceCase kCases[] = {{"RandomSequences", random_sequences}};

}  // namespace

std::span<const ConformanceCase> random_cases() {
  return kCases;
}

}  // namespace rondo
