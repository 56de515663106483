#include "runtime/launch/binding.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/gpu_loader.h"
#include "runtime/launch/gpus.h"
#include "runtime/launch/near_cores.h"

namespace rondo {
namespace {

constexpr int kMostThreads = 1024;

Binding bind_gpu(FoundGpus& found, const BindOptions& options, HostPlace place) {
  const auto visible = static_cast<int>(found.gpus.size());
  const std::vector<int> indices = choose_gpus(options, place, visible);
  const int index = indices.front();
  Binding binding;
  // Before the device: its pinned memory and its threads then lie near it, too.
  stay_near(found.gpus[static_cast<size_t>(index)].numa_node);
  binding.device = found.module->make_device(index);
  binding.backend = found.module->make_backend(*binding.device);
  binding.gpus = found.module;
  binding.gpu = found.gpus[static_cast<size_t>(index)];
  binding.visible_gpus = visible;
  for (size_t d = 1; d < indices.size(); ++d) {
    FurtherDevice& further = binding.further.emplace_back();
    further.device = found.module->make_device(indices[d]);
    further.backend = found.module->make_backend(*further.device);
    further.gpu = found.gpus[static_cast<size_t>(indices[d])];
  }
  return binding;
}

// The threads of the `d`-th of `devices` that divide `threads`.
int share_of_threads(int threads, int devices, int d) {
  return std::max(1, threads / devices + (d < threads % devices ? 1 : 0));
}

}  // namespace

FurtherDevice::FurtherDevice() = default;
FurtherDevice::FurtherDevice(FurtherDevice&&) noexcept = default;
FurtherDevice& FurtherDevice::operator=(FurtherDevice&&) noexcept = default;
FurtherDevice::~FurtherDevice() = default;

Binding::Binding() = default;
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

DeviceChoice parse_device(std::string_view text) {
  if (text == "auto") return DeviceChoice::kAuto;
  if (text == "cpu") return DeviceChoice::kCpu;
  if (text == "cuda") return DeviceChoice::kCuda;
  raise<InvalidArgument>("unknown device \"{}\"; --device takes auto, cpu or cuda", text);
}

std::vector<int> choose_gpus(const BindOptions& options, HostPlace place, int visible) {
  const GpuRequest request = parse_gpus(options.gpus);
  check_gpus(request, visible);
  const int count = request.given ? request.count : visible;
  const auto id_of = [&](int at) { return request.ids.empty() ? at : request.ids[static_cast<size_t>(at)]; };
  require(count > 0, "--gpus 0 leaves no GPU; use --device cpu to train on the host's cores");
  const int wanted = options.devices_per_rank;
  std::vector<int> ids;
  // A launcher that gives each rank GPUs of its own shows it only those.
  const bool own = count == wanted && visible == wanted;
  require(own || wanted == 1 || place.local_size * wanted <= count,
          "{} rank{} on this host with {} devices each want {} GPUs, but there are {} to take: start fewer "
          "ranks, or bind each to fewer devices",
          place.local_size, place.local_size == 1 ? "" : "s", wanted, place.local_size * wanted, count);
  require(own || place.local_size <= count || options.oversubscribe_gpus,
          "{} ranks on this host, but {} GPU{} to take: start at most one rank for each GPU (--gpus chooses "
          "them), or pass --oversubscribe-gpus to exchange gradients through the host's memory",
          place.local_size, count, count == 1 ? "" : "s");
  const int first = own ? 0 : place.local_rank * wanted;
  for (int d = 0; d < wanted; ++d) ids.push_back(id_of((first + d) % count));
  return ids;
}

Binding bind_device(const BindOptions& options, const CoreSet& own, std::span<const CoreSet> host,
                    HostPlace place) {
  require(options.threads >= 0 && options.threads <= kMostThreads,
          "--threads is {}; it takes 1 to {}, or 0 for this rank's share of the cores", options.threads,
          kMostThreads);
  require(options.devices_per_rank >= 1 && options.devices_per_rank <= kMostThreads,
          "devices_per_rank is {}; it takes 1 to {}", options.devices_per_rank, kMostThreads);
  const GpuRequest request = parse_gpus(options.gpus);
  std::string no_gpu;
  if (options.device != DeviceChoice::kCpu) {
    FoundGpus found = find_gpus();
    const bool declined = options.device == DeviceChoice::kAuto && request.given && request.count == 0;
    if (found.module != nullptr && !declined) return bind_gpu(found, options, place);
    if (options.device == DeviceChoice::kCuda) {
      raise<Unavailable>(
          "--device cuda: {}; use --device cpu, or auto, which takes a GPU where one can be used",
          found.reason);
    }
    if (!declined) no_gpu = fmt::format(" (no GPU: {})", found.reason);
  }
  check_gpus(request, 0);
  Binding binding;
  const int threads = options.threads > 0 ? options.threads : share_of_cores(own, host);
  const int devices = options.devices_per_rank;
  binding.device = make_cpu_device(share_of_threads(threads, devices, 0));
  binding.backend = make_cpu_backend(*binding.device);
  for (int d = 1; d < devices; ++d) {
    FurtherDevice& further = binding.further.emplace_back();
    further.device = make_cpu_device(share_of_threads(threads, devices, d));
    further.backend = make_cpu_backend(*further.device);
  }
  binding.no_gpu = std::move(no_gpu);
  return binding;
}

}  // namespace rondo
