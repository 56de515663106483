#include "runtime/train/reports.h"

#include <fmt/core.h>

#include <fstream>
#include <map>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/trainer.h"

namespace rondo {

int64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmHWM:")) continue;
    std::istringstream words(line.substr(6));
    int64_t kibibytes = 0;
    words >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

std::vector<Usage> gather_usage(Communicator& comm, const Usage& mine) {
  constexpr size_t kFields = 6;
  const double own[kFields] = {mine.seconds,
                               mine.compute_seconds,
                               mine.communication_seconds,
                               mine.input_seconds,
                               static_cast<double>(mine.peak_memory_bytes),
                               static_cast<double>(mine.peak_device_bytes)};
  const auto ranks = static_cast<size_t>(comm.size());
  const std::vector<int64_t> counts(ranks, kFields);
  std::vector<double> all(ranks * kFields);
  comm.host()
      .all_gather_v(span_of(std::span<const double>(own)), span_of(std::span(all)), counts,
                    {.label = "usage"})
      .wait();
  std::vector<Usage> usages;
  for (size_t r = 0; r < ranks; ++r) {
    const double* of = all.data() + r * kFields;
    usages.push_back({.seconds = of[0],
                      .compute_seconds = of[1],
                      .communication_seconds = of[2],
                      .input_seconds = of[3],
                      .peak_memory_bytes = static_cast<int64_t>(of[4]),
                      .peak_device_bytes = static_cast<int64_t>(of[5])});
  }
  return usages;
}

Stopper gather_stoppers(Communicator& comm, const Stopper& mine) {
  const auto names = all_gather_strings(comm, mine.name);
  const auto reasons = all_gather_strings(comm, mine.reason);
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;  // name, ranks
  Stopper all;
  for (size_t r = 0; r < names.size(); ++r) {
    if (names[r].empty()) continue;
    if (groups.empty()) all.reason = reasons[r];
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == names[r]; });
    if (same == groups.end()) {
      groups.push_back({names[r], {r}});
    } else {
      same->second.push_back(r);
    }
  }
  for (const auto& [name, ranks] : groups) {
    all.name += all.name.empty() ? name : ", " + name;
    if (ranks.size() == names.size()) continue;
    all.name += ranks.size() == 1 ? " (rank " : " (ranks ";
    for (size_t i = 0; i < ranks.size(); ++i) all.name += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
    all.name += ")";
  }
  return all;
}

const std::vector<double>& History::at(const std::string& name) const {
  std::string known;
  for (const auto& [column, values] : history) {
    if (column == name) return values;
    known += (known.empty() ? "" : ", ") + column;
  }
  raise<InvalidArgument>("the history has no '{}'; it has: {}", name, known.empty() ? "nothing" : known);
}

}  // namespace rondo
