#include <cuda_runtime_api.h>

namespace {

struct Text {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define RONDO_SIM_ERROR(error, text) \
  Text {                             \
    error, #error, text              \
  }
constexpr Text kTexts[] = {
    RONDO_SIM_ERROR(cudaSuccess, "no error"),
    RONDO_SIM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    RONDO_SIM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    RONDO_SIM_ERROR(cudaErrorInsufficientDriver,
                    "CUDA driver version is insufficient for CUDA runtime version"),
    RONDO_SIM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    RONDO_SIM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    RONDO_SIM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    RONDO_SIM_ERROR(cudaErrorNotReady, "device not ready"),
    RONDO_SIM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    RONDO_SIM_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    RONDO_SIM_ERROR(cudaErrorNotSupported, "operation not supported"),
    RONDO_SIM_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                    "part or all of the requested memory range is already mapped"),
    RONDO_SIM_ERROR(cudaErrorHostMemoryNotRegistered,
                    "pointer does not correspond to a registered memory region"),
    RONDO_SIM_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    RONDO_SIM_ERROR(cudaErrorStreamCaptureInvalidated,
                    "operation failed due to a previous error during capture"),
    RONDO_SIM_ERROR(cudaErrorStreamCaptureMerge,
                    "operation would result in a merge of separate capture sequences"),
    RONDO_SIM_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    RONDO_SIM_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    RONDO_SIM_ERROR(cudaErrorStreamCaptureIsolation,
                    "dependency created on uncaptured work in another stream"),
    RONDO_SIM_ERROR(cudaErrorCapturedEvent,
                    "operation not permitted on an event last recorded in a capturing stream"),
};

const Text* find(cudaError_t error) {
  for (const Text& each : kTexts) {
    if (each.error == error) return &each;
  }
  return nullptr;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const Text* found = find(error);
  return found == nullptr ? "cudaErrorOfTheSimulation" : found->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const Text* found = find(error);
  return found == nullptr ? "an error that the simulation does not name" : found->text;
}

}  // extern "C"
