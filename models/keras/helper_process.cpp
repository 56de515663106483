#include "models/keras/helper_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "models/keras/descriptor.h"
#include "models/keras/helper_image.h"
#include "models/keras/new_file.h"
#include "models/keras/wire.h"
#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

int64_t deadline_in(double seconds) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec + static_cast<int64_t>(seconds * 1e9);
}

// The program in memory, sealed so that nobody changes it before it runs.
Descriptor helper_in_memory() {
#ifndef MFD_EXEC
  constexpr unsigned MFD_EXEC = 0x10;
#endif
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor program(memfd_create("rondo-file-helper", kFlags | MFD_EXEC));
  if (!program) program.reset(memfd_create("rondo-file-helper", kFlags));  // Linux before 6.3
  if (!program) raise<FileError>("the helper program cannot be put into memory: {}", strerror(errno));
  std::span<const char> image = helper_image();
  while (!image.empty()) {
    const ssize_t written = write(program.get(), image.data(), image.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) raise<FileError>("the helper program cannot be put into memory: {}", strerror(errno));
    image = image.subspan(static_cast<size_t>(written));
  }
  fcntl(program.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  return program;
}

struct SpawnActions {
  SpawnActions() { posix_spawn_file_actions_init(&actions); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t actions;
};

struct SpawnAttributes {
  SpawnAttributes() {
    posix_spawnattr_init(&attributes);
    // The helper takes no part in our handling of signals.
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);  // ^C reaches us, and we end it
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  posix_spawnattr_t attributes;
};

struct HelperCall {
  const char* verb;
  Container container;
  int64_t memory = 0;
  int64_t seconds = 0;
  int64_t budget = 0;
};

// A running helper; ended and reaped at the latest by the destructor.
class Helper {
 public:
  Helper(int file, const HelperCall& call) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      raise<FileError>("no socket for the helper program: {}", strerror(errno));
    }
    ours_.reset(ends[0]);
    // Above the numbers they get in the helper, so that neither overwrites the other.
    const Descriptor theirs_low(ends[1]);
    const Descriptor theirs(fcntl(theirs_low.get(), F_DUPFD_CLOEXEC, 10));
    const Descriptor file_high(fcntl(file, F_DUPFD_CLOEXEC, 10));
    if (!theirs || !file_high) raise<FileError>("no descriptor for the helper program: {}", strerror(errno));
    start(theirs.get(), file_high.get(), call);
  }
  ~Helper() { end(); }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  int socket() const { return ours_.get(); }

  // Waits for its end, which has been told or is forced; gives what it died of, or nothing.
  std::string end(bool force = true) {
    if (pid_ <= 0) return {};
    if (force) kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
    return {};
  }

 private:
  void start(int socket, int file, const HelperCall& call) {
    const char* other = std::getenv("RONDO_FILE_HELPER");
    Descriptor program;
    std::string path;
    if (other != nullptr && *other != '\0') {
      path = other;
    } else {
      program = helper_in_memory();
      path = "/proc/self/fd/" + std::to_string(program.get());
    }
    SpawnActions spawn;
    posix_spawn_file_actions_adddup2(&spawn.actions, socket, 0);
    posix_spawn_file_actions_addopen(&spawn.actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&spawn.actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&spawn.actions, file, 3);
    const SpawnAttributes attributes;
    std::vector<std::string> words{"rondo-file-helper",
                                   call.verb,
                                   call.container == Container::kZip ? "keras" : "h5",
                                   std::to_string(call.memory),
                                   std::to_string(call.seconds),
                                   std::to_string(call.budget)};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    // We have the file; locks, which network file systems often lack, add nothing.
    std::vector<std::string> environment{"HDF5_USE_FILE_LOCKING=FALSE"};
    if (const char* libraries = std::getenv("LD_LIBRARY_PATH")) {
      environment.push_back(std::string("LD_LIBRARY_PATH=") + libraries);
    }
    std::vector<char*> envp;
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
    const int error =
        posix_spawn(&pid_, path.c_str(), &spawn.actions, &attributes.attributes, argv.data(), envp.data());
    if (error != 0) {
      pid_ = -1;
      raise<FileError>(
          "the helper program cannot be started from {}: {}; set RONDO_FILE_HELPER to the installed "
          "rondo-file-helper",
          path, strerror(error));
    }
  }

  Descriptor ours_;
  pid_t pid_ = -1;
};

struct OpenFile {
  Descriptor descriptor;
  int64_t bytes = 0;
  Container container = Container::kH5;
};

OpenFile open_file(const std::string& path) {
  // Not blocking, so that a FIFO does not make us wait for a writer.
  OpenFile file{.descriptor = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (!file.descriptor) raise<FileError>("{}: cannot be opened: {}", path, strerror(errno));
  struct stat status {};
  if (fstat(file.descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    raise<FileError>("{}: is not a regular file", path);
  }
  file.bytes = status.st_size;
  std::array<char, 8> begin{};
  if (pread(file.descriptor.get(), begin.data(), begin.size(), 0) < 0) {
    raise<FileError>("{}: cannot be read: {}", path, strerror(errno));
  }
  const std::string_view bytes(begin.data(), begin.size());
  if (bytes == std::string_view("\x89HDF\r\n\x1a\n", 8)) {
    file.container = Container::kH5;
  } else if (bytes.starts_with("PK\x03\x04")) {
    file.container = Container::kZip;
  } else {
    raise<FileError>("{}: is neither an HDF5 file nor a .keras archive ({} bytes)", path, file.bytes);
  }
  return file;
}

}  // namespace

Container container_of(const std::string& path) {
  return open_file(path).container;
}

FileContent read_file(const std::string& path, const HelperLimits& limits) {
  const OpenFile file = open_file(path);
  const double seconds =
      limits.seconds > 0.0 ? limits.seconds : 60.0 + static_cast<double>(file.bytes / (10 * kMiB));
  // What is stored in 16 bits becomes 32, small integers become 64; deflated data may be larger still.
  const int64_t budget = 64 * kMiB + 64 * file.bytes;
  const HelperCall call{.verb = "read",
                        .container = file.container,
                        .memory = limits.memory_bytes > 0 ? limits.memory_bytes : 512 * kMiB + 8 * file.bytes,
                        .seconds = limits.cpu_seconds > 0 ? limits.cpu_seconds : 3 + file.bytes / (50 * kMiB),
                        .budget = budget};
  Helper helper(file.descriptor.get(), call);
  // Names and sizes come on top of the data.
  Wire wire(helper.socket(), budget + 64 * kMiB, deadline_in(seconds));
  try {
    return receive_content(wire);
  } catch (const ToldError& error) {
    raise<FileError>("{}: {}", path, error.what());
  } catch (const WireError& error) {
    if (wire.timed_out()) {
      raise<FileError>("{}: reading it took more than {} s; the file is damaged or the disk too slow", path,
                       seconds);
    }
    const std::string death = helper.end();
    raise<FileError>("{}: is damaged: reading it ended with \"{}\"", path,
                     death.empty() || death == strsignal(SIGKILL) ? error.what() : death);
  }
}

void write_file(const std::string& path, Container container, const FileContent& content) {
  NewFile file(path);
  Helper helper(file.descriptor(), {.verb = "write", .container = container, .budget = int64_t{1} << 50});
  Wire wire(helper.socket(), kMostText);
  try {
    try {
      if (container == Container::kZip) {
        wire.send_number(static_cast<int64_t>(Record::kConfig));
        wire.send_text(content.config_json);
        wire.send_number(static_cast<int64_t>(Record::kMetadata));
        wire.send_text(content.metadata_json);
      }
      send_group(wire, content.root);
      wire.send_number(static_cast<int64_t>(Record::kEnd));
    } catch (const WireError&) {
      // It stopped listening, perhaps after having said why.
    }
    receive_content(wire);
  } catch (const ToldError& error) {
    raise<FileError>("{}: {}", path, error.what());
  } catch (const WireError& error) {
    raise<FileError>("{}: cannot be written: the helper program ended ({})", path, error.what());
  }
  helper.end(false);
  file.commit();
}

}  // namespace rondo::keras
