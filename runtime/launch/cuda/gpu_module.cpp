// The CUDA module's only door: rondo_gpu_module(), which the program finds by name.
#include "runtime/launch/gpu_module.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/cuda_version.h"
#include "runtime/kernels/cuda/cuda_backend.h"
#include "runtime/kernels/cuda/scale.h"

namespace rondo {
namespace {

#ifdef RONDO_SIMULATED_MODULE
constexpr bool kSimulated = true;
#else
constexpr bool kSimulated = false;
#endif

class KernelArithmetic final : public SpanArithmetic {
 public:
  void scale(Stream& stream, ConstSpan in, Span out, double factor) override {
    scale_span(stream, in, out, factor);
  }
  void convert(Stream& stream, ConstSpan in, Span out) override { convert_span(stream, in, out); }
};

class CudaModule final : public GpuModule {
 public:
  bool simulated() const override { return kSimulated; }

  GpuVersions versions() override {
    return {.runtime = cuda::runtime_version(),
            .driver = cuda::driver_version(),
            .cublas = cublas_version(),
            .cudnn = cudnn_version(),
            .nccl = nccl_version()};
  }

  std::vector<GpuInfo> gpus() override {
    std::vector<GpuInfo> list;
    for (const cuda::DeviceFacts& facts : cuda::list_devices()) {
      list.push_back({.name = facts.name,
                      .uuid = facts.uuid,
                      .pci_bus = facts.pci_bus,
                      .memory_bytes = facts.memory_bytes,
                      .numa_node = facts.numa_node});
    }
    return list;
  }

  std::unique_ptr<Device> make_device(int index) override { return cuda::make_cuda_device(index); }

  std::unique_ptr<KernelBackend> make_backend(Device& device) override { return make_cuda_backend(device); }

  std::unique_ptr<Communicator> make_communicator(Communicator& host, Device& device,
                                                  const GpuCommunicatorOptions& options) override {
    return make_nccl_communicator(host, device, arithmetic_,
                                  {.deadline = options.deadline,
                                   .connect_deadline = options.connect_deadline,
                                   .check_calls = options.check_calls});
  }

 private:
  KernelArithmetic arithmetic_;
};

}  // namespace
}  // namespace rondo

extern "C" __attribute__((visibility("default"))) rondo::GpuModule* rondo_gpu_module(int interface) {
  if (interface != rondo::kGpuModuleInterface) return nullptr;
  static rondo::CudaModule module;
  return &module;
}
