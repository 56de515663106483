#include "runtime/launch/failure_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kPatience{4000};
constexpr const char* kPublished = " (reported by rank ";

// A report on its way: fixed in size, so that one collective does.
struct Message {
  uint8_t second_hand = 0;
  uint8_t hearsay = 0;
  uint8_t exit_code = 0;
  std::array<char, 128> host{};
  std::array<char, 1400> text{};
};

template <size_t n>
void put(std::array<char, n>& to, const std::string& text) {
  to[text.copy(to.data(), n - 1)] = '\0';
}

}  // namespace

FailureReport make_report(int rank, const std::string& host, const std::exception& error) {
  FailureReport report{.rank = rank, .host = host, .text = error.what()};
  report.second_hand = dynamic_cast<const PeerError*>(&error) != nullptr;
  report.hearsay = report.second_hand && report.text.find(kPublished) != std::string::npos;
  return report;
}

std::string published_text(const FailureReport& report) {
  return fmt::format("{}{}{})", report.text, kPublished, report.rank);
}

std::string own_text(const FailureReport& report) {
  return fmt::format("rank {} ({}): {}", report.rank, report.host, report.text);
}

JointReport merge_reports(const std::vector<FailureReport>& reports) {
  // The best kind of report there is: first-hand, else what a rank saw of another, else what it was told.
  const auto worth = [](const FailureReport& r) { return (r.second_hand ? 0 : 2) + (r.hearsay ? 0 : 1); };
  int best = 0;
  for (const FailureReport& report : reports) best = std::max(best, worth(report));
  struct Group {
    const FailureReport* first;
    std::string ranks;
    size_t count;
  };
  std::vector<Group> groups;
  for (const FailureReport& report : reports) {
    if (worth(report) != best) continue;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Group& group) { return group.first->text == report.text; });
    if (same == groups.end()) {
      groups.push_back({&report, fmt::format("{}", report.rank), 1});
    } else {
      same->ranks += fmt::format(", {}", report.rank);
      ++same->count;
    }
  }
  JointReport joint;
  if (groups.empty()) return joint;
  joint.exit_code = groups.front().first->exit_code;
  for (const Group& group : groups) {
    if (!joint.text.empty()) joint.text += "; ";
    if (group.count == reports.size()) {
      joint.text = group.first->text;
    } else if (group.count == 1) {
      joint.text += own_text(*group.first);
    } else {
      joint.text += fmt::format("ranks {}: {}", group.ranks, group.first->text);
    }
  }
  return joint;
}

std::optional<JointReport> agree_on_report(Communicator& comm, const FailureReport& mine) {
  Message out;
  out.second_hand = mine.second_hand ? 1 : 0;
  out.hearsay = mine.hearsay ? 1 : 0;
  out.exit_code = static_cast<uint8_t>(mine.exit_code);
  put(out.host, mine.host);
  put(out.text, mine.text);
  std::vector<Message> all(static_cast<size_t>(comm.size()));
  const std::vector<int64_t> counts(all.size(), sizeof(Message));
  try {
    comm.all_gather_v({&out, sizeof(Message), DType::kU8},
                      {all.data(), static_cast<int64_t>(sizeof(Message) * all.size()), DType::kU8}, counts,
                      {.label = "failure report", .deadline = kPatience})
        .wait();
  } catch (const std::exception&) {
    return std::nullopt;
  }
  std::vector<FailureReport> reports;
  for (size_t r = 0; r < all.size(); ++r) {
    reports.push_back({.rank = static_cast<int>(r),
                       .host = all[r].host.data(),
                       .text = all[r].text.data(),
                       .second_hand = all[r].second_hand != 0,
                       .hearsay = all[r].hearsay != 0,
                       .exit_code = all[r].exit_code});
  }
  return merge_reports(reports);
}

void await_others(Communicator& comm) noexcept {
  try {
    comm.barrier({.label = "end of failure report", .deadline = std::chrono::seconds(1)}).wait();
  } catch (const std::exception&) {
    // All has been said.
  }
}

}  // namespace rondo
