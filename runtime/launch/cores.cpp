#include "runtime/launch/cores.h"

#include <fmt/core.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/handle.h"

namespace rondo {
namespace {

struct TopologyTraits {
  static hwloc_topology_t empty() { return nullptr; }
  static void destroy(hwloc_topology_t topology) { hwloc_topology_destroy(topology); }
};

// For each logical processor, the core it belongs to. Empty when hwloc cannot tell.
std::map<int, int> core_of_processor() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  const Handle<hwloc_topology_t, TopologyTraits> topology(raw);
  // Only cores and processors: caches and devices cost time that a start-up has not.
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) return {};
  std::map<int, int> core_of;
  const int cores = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  for (int c = 0; c < cores; ++c) {
    const hwloc_obj_t core = hwloc_get_obj_by_type(raw, HWLOC_OBJ_CORE, static_cast<unsigned>(c));
    for (int p = hwloc_bitmap_first(core->cpuset); p != -1; p = hwloc_bitmap_next(core->cpuset, p)) {
      core_of[p] = c;
    }
  }
  return core_of;
}

}  // namespace

// The kernel refuses a mask smaller than its own, so that grows.
std::vector<int> allowed_processors() {
  for (int size = CPU_SETSIZE;; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    const int result = sched_getaffinity(0, bytes, set);
    std::vector<int> processors;
    for (int p = 0; result == 0 && p < size; ++p) {
      if (CPU_ISSET_S(static_cast<size_t>(p), bytes, set)) processors.push_back(p);
    }
    CPU_FREE(set);
    if (result == 0) return processors;
    if (size >= 1 << 20) break;
  }
  return {0};
}

CoreSet affinity_cores() {
  const std::map<int, int> core_of = core_of_processor();
  CoreSet set;
  for (const int processor : allowed_processors()) {
    const auto core = core_of.find(processor);
    set.cores.push_back(core == core_of.end() ? processor : core->second);
  }
  std::sort(set.cores.begin(), set.cores.end());
  set.cores.erase(std::unique(set.cores.begin(), set.cores.end()), set.cores.end());
  return set;
}

int share_of_cores(const CoreSet& own, std::span<const CoreSet> host) {
  double share = 0.0;
  for (const int core : own.cores) {
    const auto users = std::count_if(host.begin(), host.end(), [core](const CoreSet& set) {
      return std::binary_search(set.cores.begin(), set.cores.end(), core);
    });
    share += 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(users, 1));
  }
  // A third counted three times must make one.
  return std::max(1, static_cast<int>(share + 1e-6));
}

std::string to_text(const CoreSet& set) {
  std::string text;
  for (size_t i = 0; i < set.cores.size();) {
    size_t end = i + 1;
    while (end < set.cores.size() && set.cores[end] == set.cores[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", set.cores[i]);
    if (end - i > 1) text += fmt::format("-{}", set.cores[end - 1]);
    i = end;
  }
  return text;
}

CoreSet parse_cores(const std::string& text) {
  CoreSet set;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    require(error == std::errc() && value >= 0, "\"{}\" is not a list of cores such as 0-3,8", text);
    at = next;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    require(last >= first && last - first < 1 << 20, "\"{}\" is not a list of cores such as 0-3,8", text);
    for (int core = first; core <= last; ++core) set.cores.push_back(core);
    if (at != end) {
      require(*at == ',' && at + 1 != end, "\"{}\" is not a list of cores such as 0-3,8", text);
      ++at;
    }
  }
  return set;
}

}  // namespace rondo
