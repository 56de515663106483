// Binding a rank to its device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/launch/cores.h"

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
};

struct Binding {
  std::unique_ptr<Device> device;
  std::unique_ptr<KernelBackend> backend;

  Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();
};

// `own` are the cores of this process, `host` those of all ranks on this host. Throws Unavailable when CUDA
// is asked for and this build or host has none, InvalidArgument for GPUs that do not exist or fewer than 0
// threads.
Binding bind_device(const BindOptions& options, const CoreSet& own, std::span<const CoreSet> host);

}  // namespace rondo
