#include "runtime/launch/local_ranks.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/launch/binding.h"
#include "runtime/launch/gpu_loader.h"
#include "runtime/launch/gpus.h"

namespace rondo {
namespace {

int wanted_ranks(const BindOptions& options) {
  if (launched_by() || options.device == DeviceChoice::kCpu) return 1;
  const GpuRequest request = parse_gpus(options.gpus);
  if (!request.given || request.count < 2) return 1;
  const FoundGpus found = find_gpus();
  const auto there = static_cast<int>(found.gpus.size());
  for (const int id : request.ids) {
    if (id >= there) return 1;
  }
  return request.count <= there ? request.count : 1;
}

}  // namespace

void start_local_ranks(const BindOptions& options, char** argv) {
  const int count = wanted_ranks(options);
  if (count < 2) return;
  // Without a binding, since each rank looks for cores near its GPU; more ranks than cores are no mistake.
  std::vector<std::string> words{"mpirun",    "-np",  std::to_string(count),
                                 "--bind-to", "none", "--oversubscribe"};
  std::error_code unreadable;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  words.push_back(unreadable ? argv[0] : self.string());
  for (char** word = argv + 1; *word != nullptr; ++word) words.emplace_back(*word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  raise<Unavailable>(
      "--gpus asks for {} GPUs, one for each rank, but mpirun could not be started ({}); put Open MPI's "
      "mpirun "
      "into PATH, or start the ranks with your own launcher",
      count, std::strerror(errno));
}

}  // namespace rondo
