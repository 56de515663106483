#include "runtime/device/cpu/cpu_device.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector
constexpr int64_t kHugePage = int64_t{2} << 20;

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "host CPU";
}

class CpuEvent final : public Event {
 public:
  bool happened() const override { return true; }
  void synchronize() override {}
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(Device& device) : device_(device) {}
  Device& device() const override { return device_; }
  void record(Event&) override {}
  void wait(const Event&) override {}
  void synchronize() override {}
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill_zero(void* to, int64_t bytes) override {
    if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
  }

 private:
  Device& device_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override {
    return fmt::format("{}, {} thread{}", cpu_model_name(), threads_, threads_ == 1 ? "" : "s");
  }
  int threads() const override { return threads_; }

  Buffer allocate(int64_t bytes) override {
    require(bytes >= 0, "cannot allocate {} bytes: the size is negative", bytes);
    // Large blocks start on a huge page and ask for them, so that streaming kernels miss the TLB less. Many
    // systems give them to those only who ask.
    const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    const int64_t rounded = (bytes + alignment - 1) / alignment * alignment + (bytes == 0 ? alignment : 0);
    void* data = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
    if (data == nullptr) raise<OutOfMemory>("out of host memory: {} bytes were wanted", bytes);
#ifdef MADV_HUGEPAGE
    if (alignment == kHugePage) madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE);  // only a wish
#endif
    std::memset(data, 0, static_cast<size_t>(rounded));
    return Buffer(data, bytes, std::shared_ptr<void>(data, [](void* p) { std::free(p); }));
  }
  Buffer allocate_host(int64_t bytes) override {
    return allocate(bytes);
  }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<CpuStream>(*this);
  }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<CpuEvent>();
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  require(threads >= 1, "a host device needs at least 1 thread, got {}", threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace rondo
