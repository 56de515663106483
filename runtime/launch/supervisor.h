// Ends a job whose rank fails: one message, a non-zero exit, no rank left waiting.
#pragma once

#include <exception>
#include <string>
#include <vector>

namespace rondo {

class Communicator;

// Exit codes of a process; a signal to stop gives 128 + its number.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;  // an option was wrong; nothing was done

struct LocalProcess {
  int rank = 0;
  int pid = 0;
};

// What must be known before anything fails.
struct SupervisedRank {
  std::string program;  // the beginning of messages
  int rank = 0;
  int size = 1;
  std::string host = {};
  std::vector<LocalProcess> neighbours = {};  // the other ranks on this host, by rank
  Communicator* comm = nullptr;               // whose members must be told; null: a world of one
  Communicator* meeting = nullptr;  // another one of the same ranks, still good when `comm` has failed
};

// While one lives, an exception that nobody catches, SIGINT, SIGTERM and SIGHUP end the process in an orderly
// way.
//   An exception is reported as report_failure() does, and the process exits without waiting for other ranks.
//   The first signal prints one line, on the lowest living rank of a host, which names a rank of this host
//   that is
// gone (a launcher stops the others when one was killed), and sets stop_signal(), so that a
//   training
// loop can finish its step and stop on all ranks. The process exits with 128 + signal after kStopSeconds at
// the latest, and at once on a second signal. One at a time in a process.
class Supervisor {
 public:
  static constexpr unsigned kStopSeconds = 5;

  explicit Supervisor(SupervisedRank rank);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // The signal that asked this process to stop; 0: none did.
  static int stop_signal();

  // An error with this text was raised by all ranks alike; report_failure() lets only rank 0 print it.
  void note_shared_error(const std::string& text) { shared_error_ = text; }

  // Prints `error`, once for the job, and returns the exit code, the same on all ranks that take part. The
  // other ranks are told first; then all who fail within about two seconds compare what they have to say, and
  // rank 0 prints it: an error that all share as it is, one of some ranks with their numbers and hosts. A
  // rank that finds nobody to compare with prints its own error. Returns within kReportSeconds: a watchdog
  // ends the process if the transport hangs.
  static constexpr unsigned kReportSeconds = 6;
  int report_failure(const std::exception& error) noexcept;

 private:
  int report(const std::exception& error);

  SupervisedRank rank_;
  std::string shared_error_;
};

// Writes "program: error: text\n" to standard error in one piece. Line ends within the text become blanks.
void print_error(const std::string& program, const std::string& text);

// kExitUsage for an InvalidArgument, kExitFailure for other errors; 128 + signal where a signal asked to
// stop.
int exit_code_of(const std::exception& error);

}  // namespace rondo
