#include "runtime/device/cuda/check.h"

#include <string_view>

#include "runtime/base/error.h"

namespace rondo::cuda {
namespace {

const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "; check nvidia-smi and CUDA_VISIBLE_DEVICES, or train on the host's cores with --device cpu";
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
      return "; install a newer driver, or train on the host's cores with --device cpu";
    case cudaErrorNoKernelImageForDevice:
      return "; this build was not made for this GPU: configure it with CMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorDevicesUnavailable:
      return "; another process holds the GPU in exclusive mode";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "; work that was queued before this call failed: CUDA_LAUNCH_BLOCKING=1 stops at the call that "
             "queued it; please report this";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchTimeout:
      return "; the GPU itself failed: see `nvidia-smi -q` and the kernel's log";
    default:
      return "";
  }
}

}  // namespace

void raise_cuda(cudaError_t error, const char* call) {
  cudaGetLastError();  // one report is enough where the error is not sticky
  const std::string_view text(call);
  const std::string_view name = text.substr(0, text.find('('));
  raise<DeviceError>("{} failed: {} ({}){}", name, cudaGetErrorString(error), cudaGetErrorName(error),
                     advice(error));
}

}  // namespace rondo::cuda
