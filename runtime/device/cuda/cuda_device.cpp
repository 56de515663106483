#include "runtime/device/cuda/cuda_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/handle.h"
#include "runtime/device/cuda/capture.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/memory.h"

namespace rondo::cuda {
namespace {

struct StreamTraits {
  static cudaStream_t empty() { return nullptr; }
  static void destroy(cudaStream_t stream) { cudaStreamDestroy(stream); }
};
struct EventTraits {
  static cudaEvent_t empty() { return nullptr; }
  static void destroy(cudaEvent_t event) { cudaEventDestroy(event); }
};

// Lets go of a handle without destroying it.
template <class AnyHandle>
void leak_if(bool hung, AnyHandle& handle) {
  if (hung) new AnyHandle(std::move(handle));  // NOLINT: on purpose
}

// The answer of a query.
bool over(cudaError_t answer, const char* call) {
  if (answer == cudaErrorNotReady) {
    cudaGetLastError();  // no failure, but kept as the last error
    return false;
  }
  check(answer, call);
  return true;
}

std::chrono::seconds work_deadline() {
  const char* text = std::getenv("RONDO_DEVICE_DEADLINE");
  const int seconds = text != nullptr ? std::atoi(text) : 0;
  return std::chrono::seconds(seconds > 0 ? seconds : 300);
}

// Blocks until `done()`, resting longer the longer it takes. CUDA's own waits know no deadline, and a GPU may
// hang. They come behind this one and return at once: tools that check a program's order know them, not
// polling.
template <class Done>
void wait_until(const Hung& hung, const Done& done) {
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::microseconds pause{0};
  while (!done()) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    pause = std::min(pause + std::chrono::microseconds(2), std::chrono::microseconds(200));
    if (pause.count() < 200) continue;
    const auto limit = work_deadline();
    if (!*hung && std::chrono::steady_clock::now() - begin < limit) continue;
    *hung = true;
    raise<DeviceError>(
        "the GPU did not finish its work within {} s: it hangs (see nvidia-smi and the kernel's log), or one "
        "piece of work takes longer (RONDO_DEVICE_DEADLINE=SECONDS waits so long)",
        limit.count());
  }
}

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, Hung hung) : hung_(std::move(hung)) {
    RONDO_CHECK_CUDA(cudaSetDevice(device));
    cudaEvent_t event = nullptr;
    // Waiting for it sleeps instead of spinning.
    RONDO_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    event_.reset(event);
  }
  bool happened() const override { return over(cudaEventQuery(event_.get()), "cudaEventQuery"); }
  void synchronize() override {
    wait_until(hung_, [this] { return happened(); });
    RONDO_CHECK_CUDA(cudaEventSynchronize(event_.get()));
  }
  cudaEvent_t handle() const { return event_.get(); }

 private:
  Hung hung_;
  Handle<cudaEvent_t, EventTraits> event_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(Device& device, int index, bool urgent, Hung hung)
      : device_(device), index_(index), hung_(std::move(hung)) {
    RONDO_CHECK_CUDA(cudaSetDevice(index));
    int lowest = 0, highest = 0;
    if (urgent) RONDO_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    cudaStream_t stream = nullptr;
    RONDO_CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? highest : 0));
    stream_.reset(stream);
  }
  ~CudaStream() override { leak_if(*hung_, stream_); }
  Device& device() const override { return device_; }
  void record(Event& event) override { RONDO_CHECK_CUDA(cudaEventRecord(handle_of(event), stream_.get())); }
  void wait(const Event& event) override {
    RONDO_CHECK_CUDA(cudaStreamWaitEvent(handle(), handle_of(event), 0));
  }
  void synchronize() override {
    wait_until(hung_, [this] { return over(cudaStreamQuery(stream_.get()), "cudaStreamQuery"); });
    RONDO_CHECK_CUDA(cudaStreamSynchronize(stream_.get()));
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes <= 0 || to == from) return;
    RONDO_CHECK_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, handle()));
  }
  void fill_zero(void* to, int64_t bytes) override {
    if (bytes <= 0) return;
    cudaPointerAttributes attributes{};
    RONDO_CHECK_CUDA(cudaPointerGetAttributes(&attributes, to));
    if (attributes.type == cudaMemoryTypeUnregistered) {  // ordinary host memory
      synchronize();
      std::memset(to, 0, static_cast<size_t>(bytes));
      return;
    }
    RONDO_CHECK_CUDA(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), handle()));
  }
  bool capturing() const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    RONDO_CHECK_CUDA(cudaStreamIsCapturing(stream_.get(), &status));
    return status != cudaStreamCaptureStatusNone;
  }
  cudaStream_t handle() const {
    RONDO_CHECK_CUDA(cudaSetDevice(index_));
    return stream_.get();
  }

 private:
  Device& device_;
  int index_;
  Hung hung_;
  Handle<cudaStream_t, StreamTraits> stream_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index, const std::string& model)
      : index_(index),
        name_(fmt::format("{} (GPU {})", model, index)),
        pool_(std::make_shared<MemoryPool>(index, name_)),
        setup_(*this, index, false, hung_) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }
  int threads() const override { return 1; }

  Buffer allocate(int64_t bytes) override {
    require(bytes >= 0, "cannot allocate {} bytes: the size is negative", bytes);
    void* data = pool_->allocate(bytes);
    Buffer buffer(data, bytes, std::shared_ptr<void>(data, [pool = pool_, hung = hung_, bytes](void* p) {
                    if (!*hung) pool->release(p, bytes);
                  }));
    setup_.fill_zero(data, bytes);
    setup_.synchronize();
    return buffer;
  }

  Buffer allocate_host(int64_t bytes) override {
    require(bytes >= 0, "cannot allocate {} bytes: the size is negative", bytes);
    RONDO_CHECK_CUDA(cudaSetDevice(index_));
    const size_t size = static_cast<size_t>(bytes) + 64;  // never nothing
    void* data = nullptr;
    const cudaError_t error = cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      raise<OutOfMemory>(
          "out of pinned host memory: {} were wanted; the host is short of memory, or `ulimit -l` is too low",
          bytes_text(bytes));
    }
    check(error, "cudaHostAlloc");
    std::memset(data, 0, size);
    return Buffer(data, bytes, std::shared_ptr<void>(data, [hung = hung_](void* p) {
                    if (!*hung) cudaFreeHost(p);
                  }));
  }

  DeviceMemory memory() const override {
    RONDO_CHECK_CUDA(cudaSetDevice(index_));
    size_t free = 0, total = 0;
    RONDO_CHECK_CUDA(cudaMemGetInfo(&free, &total));
    const MemoryPool::Use use = pool_->use();
    return {.total = static_cast<int64_t>(total),
            .available = static_cast<int64_t>(free) + use.kept,
            .in_use = use.in_use,
            .peak = use.peak};
  }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<CudaStream>(*this, index_, false, hung_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(index_, hung_); }
  std::unique_ptr<Capture> capture(Stream& stream) override { return begin_capture(stream, name_, hung_); }
  int index() const { return index_; }
  std::unique_ptr<Stream> make_urgent_stream() {
    return std::make_unique<CudaStream>(*this, index_, true, hung_);
  }

 private:
  int index_;
  std::string name_;
  Hung hung_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<MemoryPool> pool_;  // buffers may outlive the device
  CudaStream setup_;                  // zeroes new memory
};

// The object as this folder's type; one of another backend is a mistake of the caller.
template <class To, class From>
To& as(From& object, const char* what) {
  auto* found = dynamic_cast<To*>(&object);
  if (found == nullptr) raise<InternalError>("{} belongs to another device than a GPU", what);
  return *found;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<uint8_t>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

std::vector<DeviceFacts> list_devices() {
  int count = 0;
  RONDO_CHECK_CUDA(cudaGetDeviceCount(&count));
  std::vector<DeviceFacts> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    RONDO_CHECK_CUDA(cudaGetDeviceProperties(&properties, i));
    char bus[32] = {};
    RONDO_CHECK_CUDA(cudaDeviceGetPCIBusId(bus, sizeof(bus), i));
    int node = -1;
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, i) != cudaSuccess) {
      cudaGetLastError();
      node = -1;
    }
    devices.push_back({.name = properties.name,
                       .uuid = uuid_text(properties.uuid),
                       .pci_bus = bus,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                       .numa_node = node});
  }
  return devices;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  cudaDeviceProp properties{};
  RONDO_CHECK_CUDA(cudaGetDeviceProperties(&properties, index));
  // Host threads that wait for the GPU sleep instead of spinning.
  RONDO_CHECK_CUDA(cudaSetDevice(index));
  RONDO_CHECK_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  return std::make_unique<CudaDevice>(index, properties.name);
}

cudaStream_t handle_of(Stream& stream) {
  return as<CudaStream>(stream, "the stream").handle();
}
cudaEvent_t handle_of(const Event& event) {
  return as<const CudaEvent>(event, "the event").handle();
}
int index_of(const Device& device) {
  return as<const CudaDevice>(device, "the device").index();
}
void make_current(const Device& device) {
  RONDO_CHECK_CUDA(cudaSetDevice(index_of(device)));
}
std::unique_ptr<Stream> make_urgent_stream(Device& device) {
  return as<CudaDevice>(device, "the device").make_urgent_stream();
}

}  // namespace rondo::cuda
