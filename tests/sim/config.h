#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rondo::sim {

// "the n-th operation of device or rank `where`", from a variable such as 2:17; n counts from 1, 0 means
// never.
struct Injection {
  int where = -1;
  int64_t at = 0;
};

// What the environment says, read once. A value that makes no sense ends the process with a message.
struct Config {
  int devices = 1;                  // RONDO_SIMULATED_GPUS
  uint64_t seed = 0;                // RONDO_SIM_SEED: of the random delays
  int max_delay_us = 60;            // RONDO_SIM_DELAY_US: longest delay but for a rare one ten times as long
  size_t memory = size_t{4} << 30;  // RONDO_SIM_MEMORY: bytes of each device
  int64_t out_of_memory_at = 0;     // RONDO_SIM_OOM_AT: the n-th allocation of the process fails
  bool no_driver = false;           // RONDO_SIM_NO_DRIVER=1
  int driver_version = 0;     // RONDO_SIM_DRIVER_VERSION: as cudaDriverGetVersion writes it; 0: new enough
  Injection hang;             // RONDO_SIM_HANG=device:n: the kernel never ends
  Injection kernel_error;     // RONDO_SIM_KERNEL_ERROR=device:n: illegal address, sticky
  int nccl_version = 0;       // RONDO_SIM_NCCL_VERSION; 0: that of the header
  Injection nccl_error;       // RONDO_SIM_NCCL_ERROR=rank:n: asynchronous error at a rank's n-th operation
  Injection nccl_hang;        // RONDO_SIM_NCCL_HANG=rank:n: the rank never takes part in its n-th operation
  bool checker_only = false;  // RONDO_SIM_NO_PROTECTION=1: device memory stays open to the host
  std::string visible;        // CUDA_VISIBLE_DEVICES
  bool has_visible = false;
};

Config read_config();

}  // namespace rondo::sim
