#include "runtime/device/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/device/cuda/check.h"

namespace rondo::cuda {
namespace {

int64_t rounded(int64_t bytes) {
  const int64_t step = bytes < int64_t{1} << 20 ? 512 : int64_t{128} << 10;
  return std::max<int64_t>(1, (bytes + step - 1) / step) * step;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.0f} MiB", value / 0x1p20);
  return fmt::format("{} bytes", bytes);
}

MemoryPool::MemoryPool(int device, std::string device_name)
    : device_(device), device_name_(std::move(device_name)) {}

MemoryPool::~MemoryPool() {
  free_kept();
}

void* MemoryPool::allocate(int64_t bytes) {
  RONDO_CHECK_CUDA(cudaSetDevice(device_));
  const std::lock_guard lock(mutex_);
  const int64_t size = rounded(bytes);
  void* data = take_kept(size);
  if (data == nullptr) {
    cudaError_t error = cudaMalloc(&data, static_cast<size_t>(size));
    if (error == cudaErrorMemoryAllocation && !kept_.empty()) {
      cudaGetLastError();
      free_kept();
      error = cudaMalloc(&data, static_cast<size_t>(size));
    }
    if (error == cudaErrorMemoryAllocation) raise_out_of_memory(bytes);
    check(error, "cudaMalloc");
    taken_[data] = size;
  }
  use_.in_use += taken_[data];
  use_.peak = std::max(use_.peak, use_.in_use);
  return data;
}

// The smallest kept block that is large enough and wastes at most a quarter.
void* MemoryPool::take_kept(int64_t bytes) {
  const auto found = kept_.lower_bound(bytes);
  if (found == kept_.end() || found->first > bytes + bytes / 4) return nullptr;
  void* data = found->second;
  taken_[data] = found->first;
  use_.kept -= found->first;
  kept_.erase(found);
  return data;
}

void MemoryPool::release(void* data, int64_t) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return;
  use_.in_use -= found->second;
  use_.kept += found->second;
  kept_.emplace(found->second, data);
  taken_.erase(found);
}

void MemoryPool::free_kept() noexcept {
  if (kept_.empty() || cudaSetDevice(device_) != cudaSuccess) return;
  for (const auto& [size, data] : kept_) cudaFree(data);  // fails when the driver is gone: memory is too
  kept_.clear();
  use_.kept = 0;
}

MemoryPool::Use MemoryPool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void MemoryPool::raise_out_of_memory(int64_t bytes) const {
  cudaGetLastError();
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  raise<OutOfMemory>(
      "{}: out of memory: {} were wanted, {} of {} are free, and this process holds {}; use a smaller batch, "
      "or end what else runs on this GPU (nvidia-smi lists it)",
      device_name_, bytes_text(bytes), bytes_text(static_cast<int64_t>(free)),
      bytes_text(static_cast<int64_t>(total)), bytes_text(use_.in_use));
}

}  // namespace rondo::cuda
