#include "runtime/launch/openmp_wait.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace rondo {
namespace {

// Rounds of libgomp's waiting loop before a thread sleeps: some ten microseconds. Measured with train's mlp,
// batch 64, 2 threads on 2 cores, in images/s: alone on the machine 24,800-26,700, as fast as spinning on
// (26,000-27,500), while sleeping at once (OMP_WAIT_POLICY=passive) gives 20,400-24,500; beside four busy
// processes per core 5,300-6,200, where sleeping at once gives 4,900-8,600 and spinning on 200-400.
constexpr const char* kSpinCount = "500";

int allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // A machine with more processors than fit here has more than one.
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

}  // namespace

void restart_with_short_openmp_waits(char** argv, int threads) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (threads == 1 || (threads == 0 && allowed_processors() == 1)) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv("GOMP_SPINCOUNT", kSpinCount, 1) != 0) return;
  execv(program.c_str(), argv);
}

}  // namespace rondo
