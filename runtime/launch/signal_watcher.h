// Signals that ask a rank to stop, taken by a thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rondo {

struct LocalProcess {
  int rank = 0;
  int pid = 0;
};

// Blocks SIGINT, SIGTERM and SIGHUP in the calling thread and in those it starts later, and waits for them in
// a thread of its own. No handler runs on another thread's stack: some of oneDNN's generated kernels let the
// stack pointer point into buffers on the heap, and a handler's frame would overwrite what lies before them.
// Threads that were started before keep their own masks.
//
// The first signal prints one line, on the lowest living rank of a host; after SIGTERM the line names a rank
// of this host that is gone, since a launcher stops the others when one was killed. It sets stop_signal(), so
// that a training loop can finish its step and stop on all ranks. The process exits with 128 + signal after
// kStopSeconds at the latest, and at once on a second signal, before set_ranks() and after expect_end().
class SignalWatcher {
 public:
  static constexpr int kStopSeconds = 5;

  explicit SignalWatcher(std::string program);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // The start-up is over. `neighbours` are the other ranks on this host.
  void set_ranks(int own_rank, const std::string& host, std::vector<LocalProcess> neighbours);

  // The signal that asked this process to stop; 0: none did.
  int stop_signal() const { return stop_signal_; }

  // This process is ending with an error. If it takes longer than these seconds, or a signal comes, the
  // watcher prints `last_words` and exits.
  void expect_end(int seconds, std::string last_words);
  // They were said, or need not be.
  void drop_last_words();

  bool a_lower_rank_lives() const;
  bool a_neighbour_is_gone() const;

 private:
  void watch();
  void take(int signal);
  std::string stop_line(int signal) const;
  void wake() const;

  const std::string program_;
  sigset_t old_mask_{};
  int wake_fd_ = -1;
  std::atomic<int> stop_signal_{0};

  mutable std::mutex mutex_;  // of what follows
  bool ready_ = false;
  bool ending_ = false;
  bool closing_ = false;
  int own_rank_ = 0;
  std::string host_;
  std::vector<LocalProcess> neighbours_;
  std::optional<double> deadline_;  // on the monotonic clock
  std::string last_words_;

  std::thread thread_;
};

// Writes to standard error in as few pieces as the system allows, past stdio.
void write_error(const std::string& text);

}  // namespace rondo
