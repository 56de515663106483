#include "runtime/comm/cost_model.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Entry {
  std::string_view key;
  double LinkCost::*value;
};
constexpr std::array<Entry, 3> kEntries{Entry{"latency_us", &LinkCost::latency_us},
                                        Entry{"bytes_per_us", &LinkCost::bytes_per_us},
                                        Entry{"crossing_share", &LinkCost::crossing_share}};

void append(std::string& text, std::string_view prefix, const LinkCost& link) {
  for (const Entry& entry : kEntries) text += fmt::format("{}.{} {}\n", prefix, entry.key, link.*entry.value);
}

double* find(CostModel& model, std::string_view key) {
  for (const Entry& entry : kEntries) {
    if (key == fmt::format("inside.{}", entry.key)) return &(model.inside.*entry.value);
    if (key == fmt::format("shared.{}", entry.key)) return &(model.shared.*entry.value);
    if (key == fmt::format("between.{}", entry.key)) return &(model.between.*entry.value);
  }
  return nullptr;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

void read_line(CostModel& model, std::string_view line, int number) {
  line = trim(line.substr(0, line.find('#')));
  if (line.empty()) return;
  const size_t blank = line.find_first_of(" \t");
  double* const target = find(model, line.substr(0, blank));
  require(target != nullptr, "cost model, line {}: unknown key in \"{}\"", number, line);
  const std::string value(blank == std::string_view::npos ? std::string_view() : trim(line.substr(blank)));
  char* end = nullptr;
  const double parsed = std::strtod(value.c_str(), &end);
  require(!value.empty() && *end == '\0' && std::isfinite(parsed) && parsed > 0,
          "cost model, line {}: expected a key and a positive number, got \"{}\"", number, line);
  *target = parsed;
}

}  // namespace

std::string CostModel::to_text() const {
  std::string text;
  append(text, "inside", inside);
  append(text, "shared", shared);
  append(text, "between", between);
  return text;
}

CostModel CostModel::from_text(std::string_view text) {
  CostModel model;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    read_line(model, text.substr(0, end), number);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return model;
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
  const double by_hosts = (steps + 2 * (hosts - 1)) * link.latency_us +
                          2 * (hosts - 1) / hosts * bytes / link.bytes_per_us + 2 * model.shared.latency_us +
                          bytes / model.shared.bytes_per_us;

  ReduceAlgorithm best = ReduceAlgorithm::kDirect;
  double least = direct;
  const auto offer = [&](ReduceAlgorithm algorithm, double cost, bool possible) {
    if (!possible || cost > least) return;
    best = algorithm;
    least = cost;
  };
  offer(ReduceAlgorithm::kRing, ring, !shape.rounds_once);
  offer(ReduceAlgorithm::kHosts, by_hosts, shape.hosts_share && !shape.rounds_once);
  offer(ReduceAlgorithm::kExchange, exchange, shape.exchange_fits);
  return best;
}

}  // namespace rondo
