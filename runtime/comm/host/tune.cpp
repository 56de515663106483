#include "runtime/comm/host/tune.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "runtime/base/stopwatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/device.h"

namespace rondo {
namespace {

constexpr int64_t kSmall = 8;         // bytes
constexpr int64_t kLarge = 4 << 20;   // beyond anything that is done at once
constexpr int64_t kShared = 4 << 10;  // short, but reduced where it lies
constexpr int64_t kShortestLetter = 256;
constexpr int64_t kLongestLetter = 32 << 10;

using Call = std::function<void()>;

// Microseconds of a call on the slowest rank; the median of some rounds.
double time_of(Communicator& comm, int calls, const Call& call) {
  constexpr int kRounds = 7;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    comm.barrier().wait();
    call();  // brings the ranks together
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) call();
    rounds.push_back(watch.seconds() * 1e6 / calls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  double median = rounds[kRounds / 2];
  const Span span = span_of(std::span(&median, 1));
  comm.all_reduce(span, span, ReduceOp::kMax).wait();
  return std::max(median, 1e-3);
}

int calls_for(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>((1 << 20) / bytes, 1, 100));
}

class Tuner {
 public:
  Tuner(const std::shared_ptr<MpiSession>& session, Device& device)
      : session_(session), device_(device), flat_(make(false, {})), topology_(flat_->topology()) {
    bytes_.resize(static_cast<size_t>(kLarge) * 2);
  }

  CostModel measure() {
    inside_hosts();
    between_hosts();
    in_shared_memory();
    return costs_;
  }

 private:
  std::unique_ptr<Communicator> make(bool shared, const CostModel& costs) {
    return make_host_communicator(session_, device_, {.shared_memory = shared, .costs = costs});
  }
  int own_host() const { return topology_.host_of[static_cast<size_t>(flat_->rank())]; }
  int first_of(int host) const {
    return static_cast<int>(std::find(topology_.host_of.begin(), topology_.host_of.end(), host) -
                            topology_.host_of.begin());
  }
  Span span(int64_t bytes) { return {bytes_.data(), bytes, DType::kU8}; }

  // On all ranks, the worst of what the ranks found; 0 is no finding.
  double worst(double microseconds) {
    const Span one = span_of(std::span(&microseconds, 1));
    flat_->all_reduce(one, one, ReduceOp::kMax).wait();
    return microseconds;
  }

  // Messages among the ranks of `pair`, of which there are two; null: this rank looks on.
  void measure_link(Communicator* pair, LinkCost& link) {
    double small = 0;
    double large = 0;
    if (pair != nullptr) {
      small =
          time_of(*pair, 50, [&] { pair->all_reduce(span(kSmall), span(kSmall), ReduceOp::kMax).wait(); });
      large = time_of(*pair, 1, [&] { pair->broadcast(span(kLarge), 0).wait(); });
    }
    small = worst(small);
    large = worst(large);
    if (small == 0) return;
    link.latency_us = small;
    link.bytes_per_us = static_cast<double>(kLarge) / std::max(large - small, 0.1 * large);
  }

  // All ranks of `set` talk to all others; each link, or rank, moves `share` of the bytes.
  void measure_crossing(Communicator& set, double share, LinkCost& link) {
    const int64_t each = kLarge / set.size();
    const Span in{bytes_.data(), each * set.size(), DType::kU8};
    const Span out{bytes_.data() + kLarge, each * set.size(), DType::kU8};
    const double time = worst(time_of(set, 1, [&] { set.all_to_all(in, out).wait(); }));
    const double speed = static_cast<double>(kLarge) * share / time;
    link.crossing_share = std::clamp(speed / link.bytes_per_us, 0.05, 1.0);
  }

  void inside_hosts() {
    const auto host = flat_->split(own_host(), flat_->rank());
    const auto pair = flat_->split(topology_.local_rank < 2 && topology_.local_size > 1 ? own_host() : -1, 0);
    measure_link(pair.get(), costs_.inside);
    const double ranks = ranks_of_the_largest_host();
    measure_crossing(*host, (ranks - 1) / ranks, costs_.inside);
    if (ranks < 2) costs_.inside = CostModel().inside;
  }

  // The first rank of each host with the first of the first; the slowest link counts.
  void between_hosts() {
    if (topology_.hosts() < 2) return;
    LinkCost slowest{.latency_us = 0, .bytes_per_us = 0, .crossing_share = 1};
    for (int other = 1; other < topology_.hosts(); ++other) {
      const bool takes_part = flat_->rank() == first_of(0) || flat_->rank() == first_of(other);
      const auto pair = flat_->split(takes_part ? 0 : -1, 0);
      LinkCost link;
      measure_link(pair.get(), link);
      slowest.latency_us = std::max(slowest.latency_us, link.latency_us);
      if (other == 1 || link.bytes_per_us < slowest.bytes_per_us) slowest.bytes_per_us = link.bytes_per_us;
    }
    costs_.between = slowest;
    const double most = ranks_of_the_largest_host();
    const double ranks = flat_->size();
    measure_crossing(*flat_, most * (ranks - most) / ranks, costs_.between);
  }

  int ranks_of_the_largest_host() const {
    int most = 0;
    for (int host = 0; host < topology_.hosts(); ++host) {
      most = std::max(most,
                      static_cast<int>(std::count(topology_.host_of.begin(), topology_.host_of.end(), host)));
    }
    return most;
  }

  void in_shared_memory() {
    if (ranks_of_the_largest_host() < 2) return;
    CostModel letters = costs_;
    letters.letter_bytes = kLongestLetter;
    CostModel in_place = costs_;
    in_place.letter_bytes = kSmall;
    const auto first_world = make(true, letters);
    const auto second_world = make(true, in_place);
    const auto by_letter = first_world->split(own_host(), first_world->rank());
    const auto where_it_lies = second_world->split(own_host(), second_world->rank());
    const double small = worst(time_in_place(*where_it_lies, kShared));
    const double large = worst(time_in_place(*where_it_lies, kLarge));
    costs_.shared.latency_us = small;
    costs_.shared.bytes_per_us = static_cast<double>(kLarge - kShared) / std::max(large - small, 0.1 * large);
    costs_.letter_bytes = kShortestLetter;
    bool shorter = true;
    for (int64_t bytes = 2 * kShortestLetter; bytes <= kLongestLetter; bytes *= 2) {
      const double letter = worst(time_in_place(*by_letter, bytes));
      const double place = worst(time_in_place(*where_it_lies, bytes));
      shorter = shorter && letter <= place;
      if (shorter) costs_.letter_bytes = bytes;
    }
  }

  // A sum in memory that the ranks share, as far as they do.
  static double time_in_place(Communicator& host, int64_t bytes) {
    const Buffer buffer = host.allocate(bytes);
    const Span values{buffer.data(), bytes / static_cast<int64_t>(sizeof(float)), DType::kF32};
    return time_of(host, calls_for(bytes), [&] { host.all_reduce(values, values, ReduceOp::kSum).wait(); });
  }

  std::shared_ptr<MpiSession> session_;
  Device& device_;
  std::unique_ptr<Communicator> flat_;
  const Topology& topology_;
  std::vector<std::byte> bytes_;
  CostModel costs_;
};

}  // namespace

CostModel measure_costs(const std::shared_ptr<MpiSession>& session, Device& device) {
  return Tuner(session, device).measure();
}

}  // namespace rondo
