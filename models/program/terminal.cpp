#include "models/program/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace rondo {

bool output_is_watched(const Launch& launch) {
  if (isatty(STDOUT_FILENO) == 0) return false;
  if (launch.launcher != "Open MPI") return true;
  std::error_code error;
  const std::string parent =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), error).string();
  return parent.rfind("/dev/pts/", 0) == 0 || parent.rfind("/dev/tty", 0) == 0 || parent == "/dev/console";
}

}  // namespace rondo
