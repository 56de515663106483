#include "runtime/launch/supervisor.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

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
  int own_rank = 0;
  std::array<LocalProcess, kMostLocalRanks> neighbours{};
  std::atomic<int> neighbour_count{0};
  std::array<char, kLineBytes> last_words{};  // printed when the watchdog ends the process
  std::atomic<size_t> last_words_bytes{0};
  std::array<std::array<char, 256>, kSignals.size()> lines{};
  std::array<char, 256> gone_before{};  // the rank's number stands between these two
  std::array<char, 256> gone_after{};
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

bool lives(const LocalProcess& process) {
  return kill(process.pid, 0) == 0 || errno == EPERM;
}

bool a_lower_rank_lives() {
  const int count = handler_state.neighbour_count;
  for (int i = 0; i < count; ++i) {
    const LocalProcess& process = handler_state.neighbours[static_cast<size_t>(i)];
    if (process.rank < handler_state.own_rank && lives(process)) return true;
  }
  return false;
}

// A rank of this host that is gone; -1: none is.
int gone_rank() {
  const int count = handler_state.neighbour_count;
  for (int i = 0; i < count; ++i) {
    const LocalProcess& process = handler_state.neighbours[static_cast<size_t>(i)];
    if (!lives(process)) return process.rank;
  }
  return -1;
}

// In one write, and with nothing a signal handler may not use.
void write_gone_line(int rank) {
  std::array<char, 600> line;
  size_t at = 0;
  const auto add = [&](const char* text) {
    while (*text != '\0') line[at++] = *text++;
  };
  std::array<char, 12> digits{};
  size_t first = digits.size() - 1;
  do {
    digits[--first] = static_cast<char>('0' + rank % 10);
    rank /= 10;
  } while (rank > 0);
  add(handler_state.gone_before.data());
  add(&digits[first]);
  add(handler_state.gone_after.data());
  write_all(line.data(), at);
}

void write_stop_line(int signal) {
  if (signal == SIGTERM) {
    if (const int gone = gone_rank(); gone >= 0) return write_gone_line(gone);
  }
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const char* line = handler_state.lines[i].data();
    if (kSignals[i] == signal) write_all(line, std::strlen(line));
  }
}

extern "C" void on_stop_signal(int signal) {
  if (handler_state.stop_signal.exchange(signal) != 0 || handler_state.reporting) _exit(128 + signal);
  const int saved_errno = errno;
  if (!a_lower_rank_lives()) write_stop_line(signal);
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

template <size_t n>
void put(std::array<char, n>& to, const std::string& text) {
  to[text.copy(to.data(), n - 1)] = '\0';
}

void prepare_handlers(const SupervisedRank& rank) {
  handler_state.stop_signal = 0;
  handler_state.reporting = false;
  handler_state.last_words_bytes = 0;
  handler_state.own_rank = rank.rank;
  const size_t count = std::min(rank.neighbours.size(), handler_state.neighbours.size());
  std::copy_n(rank.neighbours.begin(), count, handler_state.neighbours.begin());
  handler_state.neighbour_count = static_cast<int>(count);
  const std::array<std::string, kSignals.size()> lines{
      fmt::format("{}: interrupted: stopping after this step; interrupt again to stop at once\n",
                  rank.program),
      fmt::format("{}: stopped by SIGTERM\n", rank.program),
      fmt::format("{}: stopped by SIGHUP: the terminal is gone\n", rank.program)};
  for (size_t i = 0; i < lines.size(); ++i) put(handler_state.lines[i], lines[i]);
  put(handler_state.gone_before, fmt::format("{}: error: rank ", rank.program));
  put(handler_state.gone_after,
      fmt::format(" ({}) ended without a message: killed, or out of memory, or crashed; the job stops\n",
                  rank.host));
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
  int code = exit_code_of(error);
  try {
    code = report(error);
  } catch (...) {
    write_all(line.data(), line.size());
  }
  alarm(0);
  return code;
}

int Supervisor::report(const std::exception& error) {
  const int own_code = exit_code_of(error);
  if (rank_.size == 1) {
    print_error(rank_.program, error.what());
    return own_code;
  }
  const bool shared = dynamic_cast<const MismatchError*>(&error) != nullptr || shared_error_ == error.what();
  FailureReport mine = make_report(rank_.rank, rank_.host, error);
  mine.exit_code = own_code;
  if (!shared && !mine.hearsay) rank_.comm->publish_failure(published_text(mine));
  // Nobody leaves before all are here: the launcher would stop the others, which then had more to say.
  if (const std::optional<JointReport> joint = agree_on_report(*rank_.meeting, mine)) {
    if (rank_.rank == 0) print_error(rank_.program, joint->text);
    return joint->exit_code;
  }
  const bool stopping = stop_signal() != 0;  // that has been told
  if (shared) {
    if (rank_.rank == 0) print_error(rank_.program, mine.text);
  } else if (!mine.second_hand) {
    print_error(rank_.program, own_text(mine));
  } else if (!mine.hearsay && !stopping && !a_lower_rank_lives()) {
    print_error(rank_.program, mine.text);
  } else if (mine.hearsay && !stopping && rank_.rank == 0) {
    const std::string line = fmt::format("{}: stopped: {}\n", rank_.program, mine.text);
    write_all(line.data(), line.size());
  }
  return own_code;
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
