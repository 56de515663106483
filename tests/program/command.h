// Running programs from tests: with a time-out, with what they printed, and with signals on the way.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace rondo::test {

struct Outcome {
  int code = -1;  // exit code; 128 + signal when a signal ended it
  std::string out;
  std::string err;
  double seconds = 0.0;
  bool timed_out = false;

  // Lines of `err` that begin with `prefix`.
  std::vector<std::string> lines_with(const std::string& prefix) const;
};

// A bash command line that runs in a process group of its own; the group is killed when this goes.
class Command {
 public:
  // `folder` becomes the working folder, and takes the files that hold the output.
  Command(const std::string& line, const std::filesystem::path& folder);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const;  // so far
  // False when it ended, or the time passed, without this text on its standard output.
  bool wait_for_output(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(30));
  Outcome wait(std::chrono::seconds limit);

 private:
  bool poll();

  std::filesystem::path folder_;
  std::chrono::steady_clock::time_point start_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

Outcome run_command(const std::string& line, const std::filesystem::path& folder,
                    std::chrono::seconds limit = std::chrono::seconds(60));

// Processes whose parent is `parent` (or a child of it, and so on) and whose program has this name, by age.
std::vector<pid_t> descendants(pid_t parent, const std::string& program);

}  // namespace rondo::test
