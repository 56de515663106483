// Finding GPUs without linking anything of CUDA: the driver is asked first, and only when it answers is the
// CUDA module loaded.
#pragma once

#include <string>
#include <vector>

#include "runtime/launch/gpu_module.h"

namespace rondo {

struct FoundGpus {
  GpuModule* module = nullptr;  // null: none can be used
  std::vector<GpuInfo> gpus;    // not empty where there is a module
  std::string reason;           // without a module: why, as half a sentence
};

// Never throws for a missing or broken part: it says so in `reason`. With RONDO_SIMULATED_GPUS=N in the
// environment (N > 0) the module of the tests' simulated GPUs is loaded instead, and no driver is asked.
FoundGpus find_gpus();

// One line for each part: "CUDA    13.0 (driver: none)", ... Asks the driver, but loads no module.
std::string gpu_parts_of_this_build();
// "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0" or "no CUDA". Asks nobody.
std::string gpu_libraries_of_this_build();

}  // namespace rondo
