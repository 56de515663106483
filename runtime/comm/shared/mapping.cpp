#include "runtime/comm/shared/mapping.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/descriptor.h"

namespace rondo {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t round_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// What a rank tells the others after each step. An empty text: all is well.
struct Report {
  int64_t pid = 0;
  int32_t descriptor = -1;
  bool no_memory = false;
  char text[99] = {};
  uint64_t token = 0;

  void set(const std::string& what) {
    if (text[0] != 0) return;
    const size_t length = std::min(what.size(), sizeof(text) - 1);
    std::memcpy(text, what.data(), length);
  }
  bool ok() const { return text[0] == 0; }
};

std::string last_error(const char* call) {
  return fmt::format("{}: {}", call, std::strerror(errno));
}

std::vector<Report> exchange(Bootstrap& ranks, const Report& mine) {
  std::vector<Report> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

bool all_ok(const std::vector<Report>& all) {
  for (const Report& one : all) {
    if (!one.ok()) return false;
  }
  return true;
}

void throw_first(const std::vector<Report>& all, const char* what) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].ok()) continue;
    const std::string text = fmt::format("{} (rank {} of the host: {})", what, r, all[r].text);
    if (all[r].no_memory) throw DeviceError(text);
    throw Unavailable(text);
  }
}

// A number in its first bytes tells this memory from whatever another process has under the same descriptor
// number: the process numbers of two containers may mean different processes.
Descriptor create(int64_t bytes, Report& report) {
  Descriptor memory(memfd_create("rondo", MFD_CLOEXEC));
  if (!memory) {
    report.set(last_error("memfd_create"));
    return memory;
  }
  if (getrandom(&report.token, sizeof(report.token), 0) != sizeof(report.token))
    report.set(last_error("getrandom"));
  if (ftruncate(memory.get(), bytes) != 0) report.set(last_error("ftruncate"));
  if (pwrite(memory.get(), &report.token, sizeof(report.token), 0) != sizeof(report.token))
    report.set(last_error("pwrite"));
  report.descriptor = memory.get();
  return memory;
}

bool has_token(const Descriptor& memory, uint64_t token) {
  uint64_t found = 0;
  return pread(memory.get(), &found, sizeof(found), 0) == sizeof(found) && found == token;
}

// Step 1 to 4 of map_shared: every rank gets a descriptor of the same memory.
Descriptor share(Bootstrap& ranks, int64_t bytes, Passing passing) {
  Report mine;
  mine.pid = getpid();
  Descriptor memory;
  if (ranks.rank() == 0) memory = create(bytes, mine);
  std::vector<Report> all = exchange(ranks, mine);
  const Report creator = all[0];

  if (ranks.rank() != 0 && creator.ok()) {
    const std::string path = fmt::format("/proc/{}/fd/{}", creator.pid, creator.descriptor);
    if (passing == Passing::kAuto) memory = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!memory) {
      mine.set(passing == Passing::kAuto ? last_error(path.c_str()) : "not tried");
    } else if (!has_token(memory, creator.token)) {
      mine.set(path + " is other memory");
    }
  }
  all = exchange(ranks, mine);

  // The same on all ranks from here: either nobody needs the socket, or all use it.
  const bool by_socket = creator.ok() && !all_ok(all);
  std::string why_socket;
  for (const Report& one : all) why_socket = why_socket.empty() ? one.text : why_socket;
  if (by_socket) std::memset(mine.text, 0, sizeof(mine.text));
  DescriptorServer server;
  if (by_socket && ranks.rank() == 0 && !server.listen(creator.token)) mine.set(last_error("socket"));
  all = exchange(ranks, mine);
  if (by_socket && all_ok(all)) {
    if (ranks.rank() == 0) {
      if (!server.send_to(memory, ranks.size() - 1)) mine.set(last_error("sending the memory"));
    } else {
      memory = receive_descriptor(creator.token);
      if (!memory || !has_token(memory, creator.token))
        mine.set(last_error("receiving the memory") + "; " + why_socket);
    }
  }
  all = exchange(ranks, mine);
  if (ranks.rank() == 0 && memory) {
    const uint64_t zero = 0;
    if (pwrite(memory.get(), &zero, sizeof(zero), 0) != sizeof(zero)) mine.set(last_error("pwrite"));
  }
  if (!all_ok(all)) {
    exchange(ranks, mine);  // of the step that is left out
    throw_first(all, "the processes of this host cannot share memory");
  }
  return memory;
}

// At a multiple of `alignment`: a larger range is reserved, and the rest of it given back.
void* map_aligned(const Descriptor& memory, int64_t bytes, int64_t alignment) {
  const auto size = static_cast<size_t>(bytes);
  const auto reserved = static_cast<size_t>(bytes + alignment);
  void* range = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(range);
  const auto unit = static_cast<uintptr_t>(alignment);
  const uintptr_t aligned = (begin + unit - 1) / unit * unit;
  auto* at = reinterpret_cast<std::byte*>(aligned);
  if (aligned > begin) munmap(range, aligned - begin);
  const uintptr_t end = aligned + size;
  if (begin + reserved > end) munmap(at + size, begin + reserved - end);
  void* data = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.get(), 0);
  if (data != MAP_FAILED) return data;
  munmap(at, size);
  return nullptr;
}

// Takes the pages now, on this rank's node, with an error instead of a signal when there are none.
bool reserve(const Descriptor& memory, std::byte* part, int64_t offset, int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(part, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // a kernel before 5.14
#endif
  if (memory) return fallocate(memory.get(), 0, offset, bytes) == 0;
  std::memset(part, 0, static_cast<size_t>(bytes));
  return true;
}

void* make_window(const MappingOptions& options, int64_t bytes, Report& report) {
  RONDO_CHECK(options.windows != nullptr);
  try {
    std::byte* const data = options.windows->make(options.world_ranks, bytes + kPage);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    constexpr auto kUnit = static_cast<uintptr_t>(kPage);
    return data + ((begin + kUnit - 1) / kUnit * kUnit - begin);
  } catch (const Error& error) {
    report.set(error.what());
    return nullptr;
  }
}

}  // namespace

Mapping::Mapping(void* data, int64_t bytes, int64_t stride, std::span<const int> places, bool owned)
    : data_(static_cast<std::byte*>(data)), bytes_(bytes), owned_(owned) {
  for (const int place : places) parts_.push_back(data_ + place * stride);
}

void Mapping::unmap() noexcept {
  if (data_ != nullptr && owned_) munmap(data_, static_cast<size_t>(bytes_));
  data_ = nullptr;
}

Mapping map_shared(Bootstrap& ranks, int64_t part_bytes, const MappingOptions& options) {
  const int64_t used = round_up(part_bytes, kPage);
  const int64_t stride = part_bytes >= kHugePage ? round_up(part_bytes, kHugePage) : used;
  const int64_t bytes = stride * ranks.size();
  std::vector<int> places(options.places.begin(), options.places.end());
  if (places.empty()) {
    places.resize(static_cast<size_t>(ranks.size()));
    std::iota(places.begin(), places.end(), 0);
  }
  const bool window = options.passing == Passing::kWindow;
  Descriptor memory;
  if (!window) memory = share(ranks, bytes, options.passing);
  Report mine;
  void* data = window ? make_window(options, bytes, mine)
                      : map_aligned(memory, bytes, stride == used ? kPage : kHugePage);
  Mapping mapping;
  if (data == nullptr) {
    mine.set(last_error("mmap"));
  } else {
    mapping = Mapping(data, bytes, stride, places, !window);
#ifdef MADV_HUGEPAGE
    if (part_bytes >= kHugePage) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
    if (!reserve(memory, mapping.part(ranks.rank()), stride * places[static_cast<size_t>(ranks.rank())],
                 used))
      mine.set(fmt::format("{} bytes were wanted, {}", used, std::strerror(errno)));
  }
  mine.no_memory = !mine.ok();
  throw_first(exchange(ranks, mine), "out of shared memory");
#ifdef MADV_POPULATE_WRITE
  // The pages are there; the first collective need not stop at each of them.
  madvise(data, static_cast<size_t>(bytes), MADV_POPULATE_WRITE);
#endif
  return mapping;
}

}  // namespace rondo
