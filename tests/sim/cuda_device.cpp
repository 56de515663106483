#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/sim/api.h"
#include "tests/sim/devices.h"

using namespace rondo::sim;

namespace rondo::sim {
namespace {

uint64_t hash(const std::string& text, uint64_t seed) {
  uint64_t value = 0xcbf29ce484222325u ^ seed;
  for (const char c : text) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return value;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    static constexpr char kDigits[] = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[(static_cast<uint8_t>(uuid.bytes[i]) >> 4) & 15];
    text += kDigits[static_cast<uint8_t>(uuid.bytes[i]) & 15];
  }
  return text;
}

// What CUDA_VISIBLE_DEVICES leaves: indices or UUIDs, up to the first that is wrong.
std::vector<int> read_visible() {
  const Config& config = driver().config;
  std::vector<int> all;
  for (int i = 0; i < config.devices; ++i) all.push_back(i);
  if (!config.has_visible) return all;
  std::vector<int> chosen;
  size_t start = 0;
  while (start <= config.visible.size()) {
    const size_t comma = std::min(config.visible.find(',', start), config.visible.size());
    const std::string word = config.visible.substr(start, comma - start);
    int device = -1;
    char* end = nullptr;
    const long index = std::strtol(word.c_str(), &end, 10);
    if (!word.empty() && *end == '\0' && index >= 0 && index < config.devices)
      device = static_cast<int>(index);
    for (const int each : all) {
      if (word.size() > 4 && uuid_text(physical_uuid(each)).rfind(word, 0) == 0) device = each;
    }
    if (device < 0) break;
    if (std::find(chosen.begin(), chosen.end(), device) != chosen.end()) return {};
    chosen.push_back(device);
    start = comma + 1;
  }
  return chosen;
}

const std::vector<int>& visible() {
  static const std::vector<int> kVisible = read_visible();
  return kVisible;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

cudaUUID_t physical_uuid(int device) {
  cudaUUID_t uuid{};
  const uint64_t parts[2] = {hash(host_name(), static_cast<uint64_t>(device) + 1),
                             hash(host_name(), 1000 + static_cast<uint64_t>(device))};
  std::memcpy(uuid.bytes, parts, sizeof uuid.bytes);
  return uuid;
}

int visible_count() {
  return static_cast<int>(visible().size());
}
int physical_device(int device) {
  return visible()[static_cast<size_t>(device)];
}

}  // namespace rondo::sim

namespace {

template <class F>
cudaError_t with_device(int device, F&& f) {
  return locked([&](Driver& sim) {
    if (device < 0 || device >= visible_count()) return cudaErrorInvalidDevice;
    return f(sim, physical_device(device));
  });
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t error = ready(); error != cudaSuccess) return result(error);
  *count = visible_count();
  return result(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  return with_device(device, [&](Driver& sim, int) {
    set_current_device(device);
    use_device(sim);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return locked([&](Driver&) {
    *device = std::max(current_device(), 0);
    return cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return locked([](Driver&) { return cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  return with_device(device, [&](Driver& sim, int physical) {
    std::strcpy(properties->name, "Simulated GPU");
    properties->uuid = physical_uuid(physical);
    properties->totalGlobalMem = sim.memory.total();
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = 132;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->warpSize = 32;
    properties->pciBusID = physical + 1;
    properties->asyncEngineCount = 3;
    properties->unifiedAddressing = 1;
    properties->concurrentKernels = 1;
    properties->streamPrioritiesSupported = 1;
    properties->memoryPoolsSupported = 1;
    properties->hostNumaId = -1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return with_device(device, [&](Driver&, int physical) {
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = 132;
        break;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 227 << 10;
        break;
      case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
      case cudaDevAttrPciBusId:
        *value = physical + 1;
        break;
      case cudaDevAttrPciDeviceId:
      case cudaDevAttrPciDomainId:
        *value = 0;
        break;
      case cudaDevAttrHostNumaId:
        *value = -1;
        break;
      default:
        return cudaErrorNotSupported;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return with_device(device, [&](Driver&, int physical) {
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", physical + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return locked([&](Driver&) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_device(device, [&](Driver&, int) {
    *can = device != peer;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return with_device(peer, [](Driver&, int) { return cudaSuccess; });
}

cudaError_t cudaDriverGetVersion(int* version) {
  const Config& config = driver().config;
  *version = config.no_driver ? 0 : config.driver_version != 0 ? config.driver_version : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return last_error(true);
}
cudaError_t cudaPeekAtLastError() {
  return last_error(false);
}

}  // extern "C"
