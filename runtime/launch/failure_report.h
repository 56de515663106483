// What ranks that fail have to say, and how they find the one text to print.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace rondo {

class Communicator;

struct FailureReport {
  int rank = 0;
  std::string host;
  std::string text;
  bool second_hand = false;  // the trouble is another rank's: a PeerError
  bool hearsay = false;      // that rank has published it, and prints it if need be
  int exit_code = 1;
};

FailureReport make_report(int rank, const std::string& host, const std::exception& error);

// What the other ranks' PeerError will quote. It marks them as hearsay.
std::string published_text(const FailureReport& report);

// "rank 3 (node7): text".
std::string own_text(const FailureReport& report);

// What all ranks agree to say, and to exit with.
struct JointReport {
  std::string text;
  int exit_code = 1;
};

// Of all ranks' reports, in rank order: second-hand ones count only when there are no others, the same text
// is told once, with the ranks it comes from unless it comes from all, and the first of them gives the exit
// code.
JointReport merge_reports(const std::vector<FailureReport>& reports);

// Waits about four seconds for all ranks of `comm` to report, and returns the merged report, the same on all
// of them; nothing when that did not come about.
std::optional<JointReport> agree_on_report(Communicator& comm, const FailureReport& mine);

// Waits a second at most for the others to come here, too.
void await_others(Communicator& comm) noexcept;

}  // namespace rondo
