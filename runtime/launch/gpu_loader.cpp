#include "runtime/launch/gpu_loader.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>

#include "runtime/base/error.h"

#ifndef RONDO_CUDA_VERSION  // of the toolkit that the module is built with; absent where there is no module
#define RONDO_CUDA_VERSION ""
#define RONDO_NCCL_VERSION ""
#define RONDO_CUDNN_VERSION ""
#endif

namespace rondo {
namespace {

constexpr const char* kSimulatedVariable = "RONDO_SIMULATED_GPUS";

std::string toolkit() {
  return RONDO_CUDA_VERSION;
}

// The driver's own library, through the few functions of its stable interface that are needed here.
struct Driver {
  int version = 0;      // of CUDA that it supports: 13000
  std::string problem;  // empty: it has GPUs to give
};

template <class Function>
Function find_symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// cuInit's error codes, from the driver's documentation.
std::string init_problem(int code) {
  switch (code) {
    case 100:
      return "the NVIDIA driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case 802:
      return "the GPU system is not ready yet (fabric manager); see nvidia-smi";
    case 803:
      return "the NVIDIA driver and its library have different versions; reboot, or reload the driver";
    default:
      return fmt::format("the NVIDIA driver does not start (cuInit: error {}); see nvidia-smi", code);
  }
}

Driver ask_driver() {
  // Stays open: the CUDA runtime opens it again.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {0, "no NVIDIA driver was found (libcuda.so.1)"};
  const auto init = find_symbol<int (*)(unsigned)>(library, "cuInit");
  const auto get_version = find_symbol<int (*)(int*)>(library, "cuDriverGetVersion");
  const auto get_count = find_symbol<int (*)(int*)>(library, "cuDeviceGetCount");
  Driver driver;
  if (init == nullptr || get_version == nullptr || get_count == nullptr) {
    return {0, "libcuda.so.1 is not an NVIDIA driver"};
  }
  if (get_version(&driver.version) != 0) driver.version = 0;
  const int code = init(0);
  if (code != 0) return {driver.version, init_problem(code)};
  int count = 0;
  if (get_count(&count) != 0 || count == 0) return {driver.version, init_problem(100)};
  return driver;
}

// A driver serves every toolkit of its major version and of older ones.
std::string driver_too_old(const Driver& driver) {
  const int major = std::atoi(toolkit().c_str());
  if (driver.version == 0 || driver.version / 1000 >= major) return {};
  return fmt::format("the NVIDIA driver supports CUDA {}, but this build needs {}.0; update the driver",
                     version_text(driver.version), major);
}

// Beside the program, where it is built and where it is installed.
std::filesystem::path find_module(const std::string& name) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place :
       {".", "tests", "..", "../lib/rondo", "../lib64/rondo", "../lib/x86_64-linux-gnu/rondo"}) {
    const std::filesystem::path path = folder / place / name;
    if (std::filesystem::exists(path, error)) return path;
  }
  return {};
}

// Sets module or reason.
void load(const std::string& name, FoundGpus& found) {
  const std::filesystem::path path = find_module(name);
  if (path.empty()) {
    found.reason = fmt::format("{} is not beside the program", name);
    return;
  }
  // Never closed: objects of the module live as long as the program. Now: a missing library is found here.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    found.reason = fmt::format("the CUDA module cannot be loaded: {}", dlerror());
    return;
  }
  const auto get = find_symbol<GpuModuleFunction>(library, kGpuModuleSymbol);
  found.module = get != nullptr ? get(kGpuModuleInterface) : nullptr;
  if (found.module == nullptr) found.reason = fmt::format("{} belongs to another build", path.string());
}

bool simulated_wanted() {
  const char* value = std::getenv(kSimulatedVariable);
  return value != nullptr && value[0] != '\0' && std::string(value) != "0";
}

}  // namespace

FoundGpus find_gpus() {
  FoundGpus found;
  if (simulated_wanted()) {
    load("librondo_cuda_sim.so", found);
  } else if (toolkit().empty()) {
    found.reason = "this build has no CUDA backend";
  } else {
    const Driver driver = ask_driver();
    found.reason = driver.problem.empty() ? driver_too_old(driver) : driver.problem;
    if (found.reason.empty()) load("librondo_cuda.so", found);
  }
  if (found.module == nullptr) return found;
  try {
    found.gpus = found.module->gpus();
    if (found.gpus.empty()) found.reason = init_problem(100);
  } catch (const std::exception& error) {
    found.reason = error.what();
  }
  if (!found.reason.empty()) found.module = nullptr;
  return found;
}

std::string gpu_parts_of_this_build() {
  if (toolkit().empty()) {
    return "CUDA    not built\n"
           "NCCL    not built\n"
           "cuDNN   not built\n";
  }
  const Driver driver = ask_driver();
  const std::string problem = driver.problem.empty() ? driver_too_old(driver) : driver.problem;
  const std::string state =
      problem.empty() ? fmt::format("the driver supports {}", version_text(driver.version)) : problem;
  return fmt::format(
      "CUDA    {} ({})\n"
      "NCCL    {}\n"
      "cuDNN   {}\n",
      toolkit(), state, RONDO_NCCL_VERSION, RONDO_CUDNN_VERSION);
}

std::string gpu_libraries_of_this_build() {
  if (toolkit().empty()) return "no CUDA";
  return fmt::format("CUDA {}, NCCL {}, cuDNN {}", toolkit(), RONDO_NCCL_VERSION, RONDO_CUDNN_VERSION);
}

}  // namespace rondo
