#include "runtime/comm/cost_model.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cmath>

#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Number {
  std::string_view name;
  double LinkCost::*value;
};
constexpr std::array<Number, 3> kNumbers{Number{"latency_us", &LinkCost::latency_us},
                                         Number{"bytes_per_us", &LinkCost::bytes_per_us},
                                         Number{"crossing_share", &LinkCost::crossing_share}};
struct Link {
  std::string_view name;
  LinkCost CostModel::*cost;
};
constexpr std::array<Link, 3> kLinks{Link{"inside", &CostModel::inside}, Link{"shared", &CostModel::shared},
                                     Link{"between", &CostModel::between}};
constexpr std::string_view kLetterBytes = "letter_bytes";

}  // namespace

std::vector<CostModel::Value> CostModel::values() const {
  std::vector<Value> values;
  for (const Link& link : kLinks) {
    for (const Number& number : kNumbers) {
      values.push_back({fmt::format("{}.{}", link.name, number.name), this->*link.cost.*number.value});
    }
  }
  values.push_back({std::string(kLetterBytes), static_cast<double>(letter_bytes)});
  return values;
}

void CostModel::set(std::string_view name, double value) {
  require(std::isfinite(value) && value > 0, "{} is {}; it takes a number above 0", name, value);
  if (name == kLetterBytes) {
    require(value <= 1e9, "{} is {}; it takes a number of bytes", name, value);
    letter_bytes = std::llround(value);
    return;
  }
  for (const Link& link : kLinks) {
    for (const Number& number : kNumbers) {
      if (name != fmt::format("{}.{}", link.name, number.name)) continue;
      this->*link.cost.*number.value = value;
      return;
    }
  }
  raise<InvalidArgument>("\"{}\" is nothing that collectives cost", name);
}

ReduceAlgorithm choose_all_reduce(const CostModel& model, const ReduceShape& shape) {
  const bool network = shape.hosts > 1;
  const LinkCost& link = network ? model.between : model.inside;
  const auto ranks = static_cast<double>(shape.ranks);
  const auto hosts = static_cast<double>(shape.hosts);
  const auto bytes = static_cast<double>(shape.bytes);
  // How many ranks share the link, and how many of a rank's peers are beyond it. In a ring only one rank of a
  // host sends over it, as ranks are numbered host by host.
  const double sharing = network ? shape.most_on_a_host : 1;
  const double beyond = network ? ranks - sharing : ranks - 1;
  const double steps = std::bit_width(static_cast<unsigned>(shape.ranks - 1));

  const double exchange = steps * link.latency_us + sharing * beyond * bytes / link.bytes_per_us;
  // The others come after an exchange that compares the calls.
  const double direct = (steps + 2) * link.latency_us +
                        2 * sharing * beyond / ranks * bytes / (link.bytes_per_us * link.crossing_share);
  const double ring =
      (steps + 2 * (ranks - 1)) * link.latency_us + 2 * (ranks - 1) / ranks * bytes / link.bytes_per_us;
  // The two phases within a host are the halves of a reduction there.
  // What rounds once is added as float, in two hops: twice the bytes for one half of the way.
  const double hops = shape.rounds_once ? 2 : 2 * (hosts - 1);
  const double width = shape.rounds_once ? 2 : 1;
  const double by_hosts = (steps + hops) * link.latency_us +
                          (width + 1) * (hosts - 1) / hosts * bytes / link.bytes_per_us +
                          2 * model.shared.latency_us + width * bytes / model.shared.bytes_per_us;

  ReduceAlgorithm best = ReduceAlgorithm::kDirect;
  double least = direct;
  const auto offer = [&](ReduceAlgorithm algorithm, double cost, bool possible) {
    if (!possible || cost > least) return;
    best = algorithm;
    least = cost;
  };
  offer(ReduceAlgorithm::kRing, ring, !shape.rounds_once);
  offer(ReduceAlgorithm::kHosts, by_hosts, shape.hosts_share);
  offer(ReduceAlgorithm::kExchange, exchange, shape.exchange_fits);
  return best;
}

}  // namespace rondo
