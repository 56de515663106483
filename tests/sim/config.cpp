#include "tests/sim/config.h"

#include <cerrno>
#include <cstdlib>

#include "tests/sim/mistakes.h"

namespace rondo::sim {
namespace {

int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < 0) {
    die(std::string(name) + "=" + text + ": expected a whole number of at least 0");
  }
  return value;
}

Injection injection(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return {};
  char* end = nullptr;
  Injection result;
  result.where = static_cast<int>(std::strtol(text, &end, 10));
  if (*end == ':') result.at = std::strtoll(end + 1, &end, 10);
  if (*end != '\0' || result.at < 1 || result.where < 0) {
    die(std::string(name) + "=" + text + ": expected where:n, with n from 1");
  }
  return result;
}

}  // namespace

Config read_config() {
  Config config;
  config.devices = static_cast<int>(number("RONDO_SIMULATED_GPUS", 1));
  config.seed = static_cast<uint64_t>(number("RONDO_SIM_SEED", 0));
  config.max_delay_us = static_cast<int>(number("RONDO_SIM_DELAY_US", config.max_delay_us));
  config.memory = static_cast<size_t>(number("RONDO_SIM_MEMORY", static_cast<int64_t>(config.memory)));
  config.out_of_memory_at = number("RONDO_SIM_OOM_AT", 0);
  config.no_driver = number("RONDO_SIM_NO_DRIVER", 0) != 0;
  config.driver_version = static_cast<int>(number("RONDO_SIM_DRIVER_VERSION", 0));
  config.hang = injection("RONDO_SIM_HANG");
  config.kernel_error = injection("RONDO_SIM_KERNEL_ERROR");
  config.nccl_version = static_cast<int>(number("RONDO_SIM_NCCL_VERSION", 0));
  config.nccl_error = injection("RONDO_SIM_NCCL_ERROR");
  config.nccl_hang = injection("RONDO_SIM_NCCL_HANG");
  config.checker_only = number("RONDO_SIM_NO_PROTECTION", 0) != 0;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    config.visible = visible;
    config.has_visible = true;
  }
  if (config.devices > 64) die("RONDO_SIMULATED_GPUS: at most 64 devices");
  return config;
}

}  // namespace rondo::sim
