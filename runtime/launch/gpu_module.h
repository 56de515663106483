// What the CUDA module offers: a shared object of its own, loaded when a GPU is wanted, so that runs on hosts
// neither link nor load CUDA.
//
// The module is built from the same sources and by the same compiler as the program; rondo_gpu_module()
// checks that. Objects it makes keep it loaded for the life of the process; exceptions of error.h pass
// between the two.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rondo {

class Communicator;
class Device;
class KernelBackend;

// One GPU as the driver lists it: what CUDA_VISIBLE_DEVICES leaves, in its order.
struct GpuInfo {
  std::string name;     // "NVIDIA H200"
  std::string uuid;     // "GPU-6c5f...", unique among all machines
  std::string pci_bus;  // "0000:3b:00.0"
  int64_t memory_bytes = 0;
  int numa_node = -1;  // -1: not known
};

// Versions as text: "13.0", "9.19.0", "2.28.9".
struct GpuVersions {
  std::string runtime;  // of the CUDA runtime in use
  std::string driver;   // the CUDA version that the installed driver supports
  std::string cublas, cudnn, nccl;
};

struct GpuCommunicatorOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);          // of a collective
  std::chrono::milliseconds connect_deadline = std::chrono::minutes(2);  // of meeting the other ranks
  // Compares the arguments of every collective over the host communicator first, as host communicators do:
  // finds a program's mistakes, and blocks the host in each call. Equal on all ranks.
  bool check_calls = false;
};

class GpuModule {
 public:
  virtual ~GpuModule() = default;

  virtual bool simulated() const = 0;  // the test double: no GPU is used
  virtual GpuVersions versions() = 0;
  // All GPUs this process may use. Makes no context. Throws DeviceError when the driver refuses.
  virtual std::vector<GpuInfo> gpus() = 0;
  // The GPU at this position of gpus(); this thread's current GPU from here on. Throws DeviceError.
  virtual std::unique_ptr<Device> make_device(int index) = 0;
  // `device` comes from make_device and outlives the backend.
  virtual std::unique_ptr<KernelBackend> make_backend(Device& device) = 0;
  // Collectives among the GPUs of the ranks of `host` over NCCL. Collective over `host`, which the ranks meet
  // through; `host` and `device` outlive the communicator. Ranks must hold different GPUs. Throws PeerError
  // when the GPUs do not find each other in time, MismatchError when ranks run different versions of NCCL.
  virtual std::unique_ptr<Communicator> make_communicator(Communicator& host, Device& device,
                                                          const GpuCommunicatorOptions& options) = 0;
};

// Changes with this header.
constexpr int kGpuModuleInterface = 2;
// The one symbol that the module exports. Null when `interface` is not the one it was built with. The module
// owns the object.
constexpr const char* kGpuModuleSymbol = "rondo_gpu_module";
using GpuModuleFunction = GpuModule* (*)(int interface);

}  // namespace rondo
