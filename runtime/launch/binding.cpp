#include "runtime/launch/binding.h"

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/gpus.h"

namespace rondo {
namespace {

constexpr int kMostThreads = 1024;

}  // namespace

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

Binding bind_device(const BindOptions& options, const CoreSet& own, std::span<const CoreSet> host) {
  require(options.threads >= 0 && options.threads <= kMostThreads,
          "--threads is {}; it takes 1 to {}, or 0 for this rank's share of the cores", options.threads,
          kMostThreads);
  const GpuRequest gpus = parse_gpus(options.gpus);
  if (options.device == DeviceChoice::kCuda) {
    raise<Unavailable>(
        "--device cuda: this build has no CUDA backend; use --device cpu, or auto, which takes a GPU where "
        "one can "
        "be used");
  }
  check_gpus(gpus, 0);
  Binding binding;
  binding.device = make_cpu_device(options.threads > 0 ? options.threads : share_of_cores(own, host));
  binding.backend = make_cpu_backend(*binding.device);
  return binding;
}

}  // namespace rondo
