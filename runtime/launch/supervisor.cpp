#include "runtime/launch/supervisor.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/launch/failure_report.h"

namespace rondo {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
constexpr int kMostLocalRanks = 1024;
constexpr size_t kLineBytes = 2048;

// What signal handlers may touch: fixed memory, written before the handlers are installed or in one piece.
struct HandlerState {
  std::atomic<int> stop_signal{0};
  std::atomic<bool> reporting{false};
  std::array<int, kMostLocalRanks> lower_pids{};
  std::atomic<int> lower_pid_count{0};
  std::array<char, kLineBytes> last_words{};  // printed when the watchdog ends the process
  std::atomic<size_t> last_words_bytes{0};
  std::array<std::array<char, 256>, kSignals.size()> lines{};
};
HandlerState handler_state;
std::atomic<Supervisor*> active{nullptr};

void write_all(const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(STDERR_FILENO, text, bytes);
    if (written <= 0) return;
    text += written;
    bytes -= static_cast<size_t>(written);
  }
}

bool a_lower_rank_lives() {
  const int count = handler_state.lower_pid_count;
  for (int i = 0; i < count; ++i) {
    if (kill(handler_state.lower_pids[static_cast<size_t>(i)], 0) == 0) return true;
  }
  return false;
}

extern "C" void on_stop_signal(int signal) {
  if (handler_state.stop_signal.exchange(signal) != 0 || handler_state.reporting) _exit(128 + signal);
  const int saved_errno = errno;
  if (!a_lower_rank_lives()) {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      const char* line = handler_state.lines[i].data();
      if (kSignals[i] == signal) write_all(line, std::strlen(line));
    }
  }
  alarm(Supervisor::kStopSeconds);
  errno = saved_errno;
}

extern "C" void on_watchdog(int) {
  write_all(handler_state.last_words.data(), handler_state.last_words_bytes);
  const int signal = handler_state.stop_signal;
  _exit(signal != 0 ? 128 + signal : kExitFailure);
}

void install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

[[noreturn]] void on_terminate() {
  static std::atomic<bool> entered{false};
  Supervisor* const supervisor = active;
  // A second thread that fails while the first reports has nothing to add.
  if (entered.exchange(true)) {
    for (;;) pause();
  }
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

std::string error_line(const std::string& program, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("{}: error: {}\n", program, text);
}

void prepare_handlers(const SupervisedRank& rank) {
  handler_state.stop_signal = 0;
  handler_state.reporting = false;
  handler_state.last_words_bytes = 0;
  const size_t pids = std::min(rank.lower_local_pids.size(), handler_state.lower_pids.size());
  std::copy_n(rank.lower_local_pids.begin(), pids, handler_state.lower_pids.begin());
  handler_state.lower_pid_count = static_cast<int>(pids);
  const std::array<std::string, kSignals.size()> lines{
      fmt::format("{}: interrupted: stopping after this step; interrupt again to stop at once\n",
                  rank.program),
      fmt::format("{}: stopped by SIGTERM: {}\n", rank.program,
                  rank.size > 1 ? "another rank of the job ended, or the job was cancelled" : "asked to end"),
      fmt::format("{}: stopped by SIGHUP: the terminal is gone\n", rank.program)};
  for (size_t i = 0; i < lines.size(); ++i) {
    auto& line = handler_state.lines[i];
    line[lines[i].copy(line.data(), line.size() - 1)] = '\0';
  }
}

}  // namespace

Supervisor::Supervisor(SupervisedRank rank) : rank_(std::move(rank)) {
  Supervisor* expected = nullptr;
  if (!active.compare_exchange_strong(expected, this)) {
    raise<InternalError>("a second World was made in one process; make one in main and pass it on");
  }
  prepare_handlers(rank_);
  for (const int signal : kSignals) install(signal, on_stop_signal);
  install(SIGALRM, on_watchdog);
  std::set_terminate(on_terminate);
}

Supervisor::~Supervisor() {
  for (const int signal : kSignals) install(signal, SIG_DFL);
  std::set_terminate(nullptr);
  active = nullptr;
}

int Supervisor::stop_signal() {
  return handler_state.stop_signal;
}

int Supervisor::report_failure(const std::exception& error) noexcept {
  handler_state.reporting = true;
  const std::string own =
      rank_.size > 1 ? fmt::format("rank {} ({}): {}", rank_.rank, rank_.host, error.what()) : error.what();
  const std::string line = error_line(rank_.program, own);
  handler_state.last_words_bytes =
      line.copy(handler_state.last_words.data(), handler_state.last_words.size());
  alarm(kReportSeconds);
  std::fflush(stdout);
  try {
    report(error);
  } catch (...) {
    write_all(line.data(), line.size());
  }
  alarm(0);
  return exit_code_of(error);
}

void Supervisor::report(const std::exception& error) {
  if (rank_.size == 1) return print_error(rank_.program, error.what());
  const bool shared = dynamic_cast<const MismatchError*>(&error) != nullptr || shared_error_ == error.what();
  if (shared) {
    if (rank_.rank == 0) print_error(rank_.program, error.what());
    return;
  }
  const FailureReport mine = make_report(rank_.rank, rank_.host, error);
  if (!mine.hearsay) rank_.comm->publish_failure(published_text(mine));
  const std::string text = agree_on_report(*rank_.meeting, mine);
  if (!text.empty()) {
    if (rank_.rank == 0) print_error(rank_.program, text);
  } else if (!mine.second_hand) {
    print_error(rank_.program, own_text(mine));
  } else if (!mine.hearsay && lowest_living_rank() && stop_signal() == 0) {
    print_error(rank_.program, mine.text);
  } else if (rank_.rank == 0 && stop_signal() == 0) {
    const std::string line = fmt::format("{}: stopped: {}\n", rank_.program, mine.text);
    write_all(line.data(), line.size());
  }
}

bool Supervisor::lowest_living_rank() const {
  return !a_lower_rank_lives();
}

void print_error(const std::string& program, const std::string& text) {
  const std::string line = error_line(program, text);
  write_all(line.data(), line.size());
}

int exit_code_of(const std::exception& error) {
  if (const int signal = Supervisor::stop_signal(); signal != 0) return 128 + signal;
  return dynamic_cast<const InvalidArgument*>(&error) != nullptr ? kExitUsage : kExitFailure;
}

}  // namespace rondo
