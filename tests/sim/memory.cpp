#include "tests/sim/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "tests/sim/mistakes.h"

namespace rondo::sim {
namespace {

constexpr size_t kRange = size_t{1} << 38;  // addresses of one device
constexpr size_t kPage = 4096;
constexpr size_t kPoisoned = size_t{16} << 20;  // fresh memory is filled with NaN patterns up to here

// What the signal handler looks at.
struct Guard {
  uintptr_t first = 0;
  uintptr_t last = 0;
  struct sigaction before = {};
};
Guard guard;

size_t rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (address >= guard.first && address < guard.last) {
    char text[300];
    const int length = std::snprintf(text, sizeof text,
                                     "rondo_cuda_sim: MISTAKE: memory of device %d is touched at 0x%llx by "
                                     "code that may not: host code must copy "
                                     "it, a kernel must declare every span\n",
                                     static_cast<int>((address - guard.first) / kRange),
                                     static_cast<unsigned long long>(address));
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, static_cast<size_t>(length));
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
  }
  if ((guard.before.sa_flags & SA_SIGINFO) != 0) {
    guard.before.sa_sigaction(signal, info, context);
  } else if (guard.before.sa_handler != SIG_DFL && guard.before.sa_handler != SIG_IGN) {
    guard.before.sa_handler(signal);
  } else {
    sigaction(signal, &guard.before, nullptr);  // the fault repeats and ends the process as usual
  }
}

void watch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &guard.before);
}

}  // namespace

Memory::Memory(int devices, size_t bytes_each, bool protect)
    : bytes_each_(bytes_each), used_(static_cast<size_t>(devices)), protect_(protect) {
  const size_t range = kRange * static_cast<size_t>(std::max(devices, 1));
  void* base = mmap(nullptr, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) die("no address space for the simulated devices (ulimit -v?)");
  guard.first = reinterpret_cast<uintptr_t>(base);
  guard.last = guard.first + range;
  for (int i = 0; i < devices; ++i) next_.push_back(guard.first + kRange * static_cast<size_t>(i) + kPage);
  if (protect_) key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  watch_faults();
}

Allocation* Memory::enter(Allocation allocation) {
  allocation.number = ++made_;
  const uintptr_t base = allocation.base;
  allocations_.erase(base);
  return &allocations_.emplace(base, std::move(allocation)).first->second;
}

Allocation* Memory::allocate(int device, size_t bytes, const char* made_by, Touch birth) {
  const auto index = static_cast<size_t>(device);
  const size_t size = rounded(bytes);
  if (bytes > bytes_each_ || used_[index] + bytes > bytes_each_) return nullptr;
  uintptr_t& next = next_[index];
  if (next + size + kPage > guard.first + kRange * (index + 1)) return nullptr;
  void* data = reinterpret_cast<void*>(next);
  if (mprotect(data, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(data, 0xFF, std::min(bytes, kPoisoned));
  used_[index] += bytes;
  const uintptr_t base =
      std::exchange(next, next + size + kPage);  // one page between allocations stays closed
  Allocation* made = enter({base, bytes, device, 0, made_by, nullptr, History(bytes, birth)});
  protect(*made, PROT_NONE);
  return made;
}

Allocation* Memory::pin(size_t bytes) {
  void* data = mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  return enter(
      {reinterpret_cast<uintptr_t>(data), bytes, kHost, 0, "cudaHostAlloc", nullptr, History(bytes, {})});
}

Allocation* Memory::register_pinned(void* data, size_t bytes) {
  return enter(
      {reinterpret_cast<uintptr_t>(data), bytes, kHost, 0, "cudaHostRegister", nullptr, History(bytes, {})});
}

void Memory::release(Allocation& allocation, const char* freed_by) {
  allocation.freed_by = freed_by;
  allocation.history = History(allocation.bytes, {});
  void* data = reinterpret_cast<void*>(allocation.base);
  const size_t size = rounded(allocation.bytes);
  if (allocation.device != kHost) {
    used_[static_cast<size_t>(allocation.device)] -= allocation.bytes;
    mmap(data, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    if (std::strcmp(allocation.made_by, "cudaHostAlloc") == 0) munmap(data, size);
    allocations_.erase(allocation.base);  // the host may get these addresses again
  }
}

Allocation* Memory::at_or_below(const void* address) {
  const auto above = allocations_.upper_bound(reinterpret_cast<uintptr_t>(address));
  return above == allocations_.begin() ? nullptr : &std::prev(above)->second;
}

Allocation* Memory::find(const void* address) {
  Allocation* const below = at_or_below(address);
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (below == nullptr || !below->live()) return nullptr;
  return value < below->base + std::max<size_t>(below->bytes, 1) ? below : nullptr;
}

int Memory::device_of(const void* address) const {
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (value < guard.first || value >= guard.last) return kHost;
  return static_cast<int>((value - guard.first) / kRange);
}

std::string Memory::where(const void* address) const {
  const int device = device_of(address);
  return device == kHost ? "host memory" : "device " + std::to_string(device);
}

void Memory::protect(const Allocation& allocation, int protection) const {
  if (!protect_) return;
  void* data = reinterpret_cast<void*>(allocation.base);
  const size_t size = rounded(allocation.bytes);
  if ((key_ < 0 ? mprotect(data, size, protection) : pkey_mprotect(data, size, protection, key_)) != 0) {
    die("mprotect failed");
  }
}

void Memory::open(const std::vector<uintptr_t>& bases) {
  for (const uintptr_t base : bases) {
    Allocation& allocation = allocations_.at(base);
    if (allocation.live() && allocation.open++ == 0) protect(allocation, PROT_READ | PROT_WRITE);
  }
}

void Memory::close(const std::vector<uintptr_t>& bases) {
  for (const uintptr_t base : bases) {
    Allocation& allocation = allocations_.at(base);
    if (allocation.live() && --allocation.open == 0) protect(allocation, PROT_NONE);
  }
}

void Memory::unlock_thread() const {
  if (key_ >= 0) pkey_set(key_, 0);
}

void Memory::lock_thread() const {
  if (key_ >= 0) pkey_set(key_, PKEY_DISABLE_ACCESS);
}

}  // namespace rondo::sim
