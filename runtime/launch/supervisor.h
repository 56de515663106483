// Ends a job whose rank fails: one message, a non-zero exit, no rank left waiting.
#pragma once

#include <exception>
#include <string>

namespace rondo {

class Communicator;
class SignalWatcher;
struct FailureReport;

// Exit codes of a process; a signal to stop gives 128 + its number.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;  // an option was wrong; nothing was done

// What must be known before anything fails.
struct SupervisedRank {
  std::string program;  // the beginning of messages
  int rank = 0;
  int size = 1;
  std::string host = {};
  Communicator* comm = nullptr;     // whose members must be told; null: a world of one
  Communicator* meeting = nullptr;  // another one of the same ranks, still good when `comm` has failed
};

// While one lives, an exception that nobody catches is reported as report_failure() does, and the process
// exits without waiting for other ranks. One at a time in a process.
class Supervisor {
 public:
  // Throws InternalError when there is one already.
  Supervisor(SupervisedRank rank, SignalWatcher& signals);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // An error with this text was raised by all ranks alike; report_failure() then need not tell them.
  void note_shared_error(const std::string& text) { shared_error_ = text; }

  // Prints `error`, once for the job, and returns the exit code, the same on all ranks that take part. The
  // other ranks are told first; then all who fail within about four seconds compare what they have to say,
  // and rank 0 prints it: an error that all share as it is, one of some ranks with their numbers and hosts. A
  // rank that finds nobody to compare with prints its own error. If the transport hangs, the process ends
  // after kReportSeconds. To be called last.
  static constexpr int kReportSeconds = 6;
  int report_failure(const std::exception& error) noexcept;

 private:
  int report(const std::exception& error);
  std::string own_words(const FailureReport& mine, bool shared) const;
  int exit_code_of(const std::exception& error) const;

  SupervisedRank rank_;
  SignalWatcher& signals_;
  std::string shared_error_;
};

// "program: error: text\n"; line ends within the text become blanks.
std::string error_line(const std::string& program, std::string text);

// kExitUsage for an InvalidArgument, kExitFailure for other errors.
int exit_code_of(const std::exception& error);

}  // namespace rondo
