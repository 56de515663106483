#include "runtime/launch/supervisor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/launch/failure_report.h"
#include "runtime/launch/signal_watcher.h"

namespace rondo {
namespace {

// For std::terminate, which knows no objects.
std::atomic<Supervisor*> active{nullptr};

[[noreturn]] void on_terminate() {
  static std::atomic<bool> entered{false};
  // A second thread that fails while the first reports has nothing to add.
  while (entered.exchange(true)) pause();
  Supervisor* const supervisor = active;
  int code = kExitFailure;
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    throw InternalError("std::terminate was called");
  } catch (const std::exception& error) {
    if (supervisor != nullptr) code = supervisor->report_failure(error);
  } catch (...) {
    const Error error("an exception that is not a std::exception");
    if (supervisor != nullptr) code = supervisor->report_failure(error);
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

std::string error_line(const std::string& program, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("{}: error: {}\n", program, text);
}

int exit_code_of(const std::exception& error) {
  return dynamic_cast<const InvalidArgument*>(&error) != nullptr ? kExitUsage : kExitFailure;
}

Supervisor::Supervisor(SupervisedRank rank, SignalWatcher& signals)
    : rank_(std::move(rank)), signals_(signals) {
  Supervisor* expected = nullptr;
  if (!active.compare_exchange_strong(expected, this)) {
    raise<InternalError>("a second World was made in one process; make one in main and pass it on");
  }
  std::set_terminate(on_terminate);
}

Supervisor::~Supervisor() {
  std::set_terminate(nullptr);
  active = nullptr;
}

int Supervisor::exit_code_of(const std::exception& error) const {
  return signals_.stop_signal() != 0 ? 128 + signals_.stop_signal() : rondo::exit_code_of(error);
}

int Supervisor::report_failure(const std::exception& error) noexcept {
  try {
    return report(error);
  } catch (...) {
    write_error(error_line(rank_.program, error.what()));
    return exit_code_of(error);
  }
}

// What this rank prints when it finds nobody to compare with.
std::string Supervisor::own_words(const FailureReport& mine, bool shared) const {
  if (rank_.size == 1) return error_line(rank_.program, mine.text);
  const bool told = signals_.stop_signal() != 0;  // the signal's line was all there is to say
  if (shared || (mine.hearsay && !told)) {
    if (rank_.rank != 0) return {};
    return shared ? error_line(rank_.program, mine.text)
                  : fmt::format("{}: stopped: {}\n", rank_.program, mine.text);
  }
  if (!mine.second_hand) return error_line(rank_.program, own_text(mine));
  return told || signals_.a_lower_rank_lives() ? std::string() : error_line(rank_.program, mine.text);
}

int Supervisor::report(const std::exception& error) {
  std::fflush(stdout);
  FailureReport mine = make_report(rank_.rank, rank_.host, error);
  mine.exit_code = exit_code_of(error);
  const bool shared = dynamic_cast<const MismatchError*>(&error) != nullptr || shared_error_ == error.what();
  const std::string words = own_words(mine, shared);
  signals_.expect_end(kReportSeconds, words);
  if (rank_.size > 1 && !shared && !mine.hearsay) rank_.comm->publish_failure(published_text(mine));
  if (rank_.size > 1 && !signals_.a_neighbour_is_gone()) {
    // Nobody leaves before all are here: the launcher would stop the others, which then had more to say.
    if (const std::optional<JointReport> joint = agree_on_report(*rank_.meeting, mine)) {
      signals_.drop_last_words();
      if (rank_.rank == 0) write_error(error_line(rank_.program, joint->text));
      // Who leaves first has the launcher stop the others: not before they have dropped theirs, too.
      await_others(*rank_.meeting);
      return joint->exit_code;
    }
  }
  signals_.drop_last_words();
  write_error(words);
  return mine.exit_code;
}

}  // namespace rondo
