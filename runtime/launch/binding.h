// Binding a rank to its device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/cores.h"
#include "runtime/launch/gpu_module.h"

namespace rondo {

class Device;
class KernelBackend;

enum class DeviceChoice { kAuto, kCpu, kCuda };

// "auto", "cpu", "cuda"; throws InvalidArgument that lists them.
DeviceChoice parse_device(std::string_view text);

struct BindOptions {
  DeviceChoice device = DeviceChoice::kAuto;  // kAuto: a GPU where this build and the host have one
  std::string gpus = {};  // per host: a count or a list of ids (gpus.h); empty: all there are
  int threads = 0;        // of host kernels; 0: this rank's share of its cores
  // Several ranks may take one GPU; they then exchange gradients through the host's memory.
  bool oversubscribe_gpus = false;
  // The rank's set, for models that are laid over several devices (models/graph/device_scope.h): GPUs, or
  // groups of the rank's threads. Everything else goes by its first device. Equal on all ranks.
  int devices_per_rank = 1;
};

// This rank among those of its host.
struct HostPlace {
  int local_rank = 0;
  int local_size = 1;
};

// A device of a rank's set behind the first.
struct FurtherDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<KernelBackend> backend;
  GpuInfo gpu = {};

  FurtherDevice();
  FurtherDevice(FurtherDevice&&) noexcept;
  FurtherDevice& operator=(FurtherDevice&&) noexcept;
  ~FurtherDevice();
};

struct Binding {
  std::unique_ptr<Device> device;
  std::unique_ptr<KernelBackend> backend;
  std::vector<FurtherDevice> further;
  GpuModule* gpus = nullptr;  // null: a host device
  GpuInfo gpu = {};           // the one that was taken
  int visible_gpus = 0;       // to this process
  std::string no_gpu =
      {};  // of a host device that --device auto chose: ", for no NVIDIA driver ...", or empty

  Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();
};

// `own` are the cores of this process, `host` those of all ranks on this host. GPUs are taken in the order of
// options.gpus by place on the host, devices_per_rank in a row; a rank to which only so many are visible
// takes those, and stays on cores near its first GPU where that is known (near_cores.h). On a host the
// devices of a rank divide its threads; each has at least one. Throws Unavailable when CUDA is asked for and
// this build or host has none (saying why), InvalidArgument for GPUs that do not exist, for more ranks than
// GPUs, for fewer than 0 threads or 1 device, and DeviceError when the GPU refuses.
Binding bind_device(const BindOptions& options, const CoreSet& own, std::span<const CoreSet> host,
                    HostPlace place = {});

// Which of `visible` GPUs the rank at `place` takes: devices_per_rank ids. Throws InvalidArgument as
// bind_device does.
std::vector<int> choose_gpus(const BindOptions& options, HostPlace place, int visible);

}  // namespace rondo
