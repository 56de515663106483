#include "runtime/launch/near_cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/launch/cores.h"

namespace rondo {
namespace {

class ProcessorMask {
 public:
  explicit ProcessorMask(int processors)
      : bytes_(CPU_ALLOC_SIZE(static_cast<size_t>(processors))),
        set_(CPU_ALLOC(static_cast<size_t>(processors))) {
    CPU_ZERO_S(bytes_, set_);
  }
  ~ProcessorMask() { CPU_FREE(set_); }
  ProcessorMask(const ProcessorMask&) = delete;
  ProcessorMask& operator=(const ProcessorMask&) = delete;

  void add(int processor) { CPU_SET_S(static_cast<size_t>(processor), bytes_, set_); }
  bool bind(pid_t thread) const { return sched_setaffinity(thread, bytes_, set_) == 0; }

 private:
  size_t bytes_;
  cpu_set_t* set_;
};

}  // namespace

std::vector<int> processors_near(int numa_node, const std::vector<int>& allowed, const std::string& nodes) {
  std::vector<int> near;
  if (numa_node < 0) return near;
  std::ifstream file(nodes + "/node" + std::to_string(numa_node) + "/cpulist");
  std::string list;
  if (!std::getline(file, list)) return near;
  try {
    const CoreSet of_node = parse_cores(list);
    std::set_intersection(allowed.begin(), allowed.end(), of_node.cores.begin(), of_node.cores.end(),
                          std::back_inserter(near));
  } catch (const InvalidArgument&) {
    near.clear();
  }
  return near;
}

std::vector<int> stay_near(int numa_node) {
  const std::vector<int> allowed = allowed_processors();
  std::vector<int> near = processors_near(numa_node, allowed);
  if (near.empty() || near.size() == allowed.size()) return {};
  ProcessorMask mask(near.back() + 1);
  for (const int processor : near) mask.add(processor);
  std::error_code ignored;  // a thread may end while its name is read
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::string name = task.path().filename();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread > 0) mask.bind(thread);
  }
  return allowed_processors() == near ? near : std::vector<int>();
}

}  // namespace rondo
