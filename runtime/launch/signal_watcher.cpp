#include "runtime/launch/signal_watcher.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "runtime/base/error.h"

namespace rondo {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool lives(const LocalProcess& process) {
  return kill(process.pid, 0) == 0 || errno == EPERM;
}

}  // namespace

void write_error(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

SignalWatcher::SignalWatcher(std::string program) : program_(std::move(program)) {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
  wake_fd_ = eventfd(0, EFD_CLOEXEC);
  if (wake_fd_ < 0) raise<Error>("cannot make an eventfd: too many open files? (ulimit -n)");
  thread_ = std::thread([this] { watch(); });
}

SignalWatcher::~SignalWatcher() {
  {
    const std::lock_guard guard(mutex_);
    closing_ = true;
  }
  wake();
  thread_.join();
  close(wake_fd_);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void SignalWatcher::set_ranks(int own_rank, const std::string& host, std::vector<LocalProcess> neighbours) {
  const std::lock_guard guard(mutex_);
  ready_ = true;
  own_rank_ = own_rank;
  host_ = host;
  neighbours_ = std::move(neighbours);
}

void SignalWatcher::expect_end(int seconds, std::string last_words) {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
    deadline_ = now() + seconds;
    last_words_ = std::move(last_words);
  }
  wake();
}

void SignalWatcher::drop_last_words() {
  const std::lock_guard guard(mutex_);
  last_words_.clear();
}

bool SignalWatcher::a_neighbour_is_gone() const {
  const std::lock_guard guard(mutex_);
  return !std::all_of(neighbours_.begin(), neighbours_.end(), lives);
}

bool SignalWatcher::a_lower_rank_lives() const {
  const std::lock_guard guard(mutex_);
  return std::any_of(neighbours_.begin(), neighbours_.end(), [this](const LocalProcess& process) {
    return process.rank < own_rank_ && lives(process);
  });
}

void SignalWatcher::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void SignalWatcher::watch() {
  const sigset_t set = stop_signals();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  std::array<pollfd, 2> sources{pollfd{signals, POLLIN, 0}, pollfd{wake_fd_, POLLIN, 0}};
  for (;;) {
    int patience = -1;
    {
      const std::lock_guard guard(mutex_);
      if (closing_) break;
      if (deadline_) patience = std::max(0, static_cast<int>(std::ceil((*deadline_ - now()) * 1000.0)));
    }
    if (poll(sources.data(), sources.size(), patience) == 0) {
      const std::lock_guard guard(mutex_);
      write_error(last_words_);
      _exit(stop_signal_ != 0 ? 128 + stop_signal_ : 1);
    }
    if ((sources[1].revents & POLLIN) != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
    }
    if ((sources[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      if (read(signals, &info, sizeof(info)) == sizeof(info)) take(static_cast<int>(info.ssi_signo));
    }
  }
  if (signals >= 0) close(signals);
}

void SignalWatcher::take(int signal) {
  const bool quiet = a_lower_rank_lives();
  const std::lock_guard guard(mutex_);
  const bool first = stop_signal_.exchange(signal) == 0;
  if (ending_) {
    write_error(last_words_);
  } else if (first && ready_ && !quiet) {
    write_error(stop_line(signal));
  }
  if (!first || ending_ || !ready_) _exit(128 + signal);
  deadline_ = now() + kStopSeconds;
}

std::string SignalWatcher::stop_line(int signal) const {
  if (signal == SIGINT) {
    return fmt::format("{}: interrupted: stopping after this step; interrupt again to stop at once\n",
                       program_);
  }
  if (signal == SIGHUP) return fmt::format("{}: stopped by SIGHUP: the terminal is gone\n", program_);
  for (const LocalProcess& process : neighbours_) {
    if (lives(process)) continue;
    return fmt::format(
        "{}: error: rank {} ({}) ended without a message: killed, or out of memory, or crashed; the job "
        "stops\n",
        program_, process.rank, host_);
  }
  return fmt::format("{}: stopped by SIGTERM\n", program_);
}

}  // namespace rondo
