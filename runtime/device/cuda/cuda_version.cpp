#include "runtime/device/cuda/cuda_version.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "runtime/device/cuda/check.h"

namespace rondo::cuda {
namespace {

std::string text_of(int version) {
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::string runtime_version() {
  int version = 0;
  RONDO_CHECK_CUDA(cudaRuntimeGetVersion(&version));
  return text_of(version);
}

std::string driver_version() {
  int version = 0;
  RONDO_CHECK_CUDA(cudaDriverGetVersion(&version));
  return text_of(version);
}

}  // namespace rondo::cuda
