#include "tests/program/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace rondo::test {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void redirect(const std::filesystem::path& path, int to) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, to) < 0) _exit(126);
  close(file);
}

struct Process {
  pid_t parent = 0;
  std::string program;
};

// From /proc/<pid>/stat: "pid (program) state parent ...".
std::map<pid_t, Process> all_processes() {
  std::map<pid_t, Process> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const std::string stat = contents(entry.path() / "stat");
    const size_t open = stat.find('(');
    const size_t close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    Process process{0, stat.substr(open + 1, close - open - 1)};
    char state = ' ';
    std::istringstream(stat.substr(close + 1)) >> state >> process.parent;
    if (state != 'Z') all[pid] = process;
  }
  return all;
}

}  // namespace

std::vector<std::string> Outcome::lines_with(const std::string& prefix) const {
  std::vector<std::string> lines;
  std::istringstream text(err);
  for (std::string line; std::getline(text, line);) {
    if (line.rfind(prefix, 0) == 0) lines.push_back(line);
  }
  return lines;
}

Command::Command(const std::string& line, const std::filesystem::path& folder)
    : folder_(folder), start_(std::chrono::steady_clock::now()) {
  for (const char* name : {"stdout", "stderr"})
    std::filesystem::remove(folder / name);  // of a command before
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    setpgid(0, 0);
    redirect(folder / "stdout", STDOUT_FILENO);
    redirect(folder / "stderr", STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    if (chdir(folder.c_str()) != 0) _exit(126);
    execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  setpgid(pid_, pid_);
}

Command::~Command() {
  if (ended_) return;
  for (const pid_t child : descendants(pid_, "train")) kill(child, SIGKILL);
  for (const pid_t child : descendants(pid_, "faulty")) kill(child, SIGKILL);
  kill(-pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
}

std::string Command::out() const {
  return contents(folder_ / "stdout");
}

bool Command::poll() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

bool Command::wait_for_output(const std::string& text, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (out().find(text) == std::string::npos) {
    if (poll() || std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

Outcome Command::wait(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  Outcome outcome;
  while (!poll()) {
    if (std::chrono::steady_clock::now() > end) {
      outcome.timed_out = true;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (ended_) outcome.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  outcome.out = out();
  outcome.err = contents(folder_ / "stderr");
  return outcome;
}

Outcome run_command(const std::string& line, const std::filesystem::path& folder,
                    std::chrono::seconds limit) {
  return Command(line, folder).wait(limit);
}

std::vector<pid_t> descendants(pid_t parent, const std::string& program) {
  const std::map<pid_t, Process> all = all_processes();
  std::vector<pid_t> found;
  for (const auto& [pid, process] : all) {
    if (process.program != program) continue;
    pid_t above = process.parent;
    while (above != parent && all.count(above) > 0) above = all.at(above).parent;
    if (above == parent) found.push_back(pid);
  }
  return found;
}

}  // namespace rondo::test
