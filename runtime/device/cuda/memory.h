// Memory of one GPU, kept for reuse when it is released: cudaMalloc and cudaFree wait for the whole device.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace rondo::cuda {

// Any thread may call. Every function makes the pool's GPU current for it.
class MemoryPool {
 public:
  // `device_name` appears in messages.
  MemoryPool(int device, std::string device_name);
  ~MemoryPool();  // frees what was released; the rest must have been
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Not zeroed; at least 256 bytes alignment. Throws OutOfMemory after giving back all that is kept.
  void* allocate(int64_t bytes);
  // `data` of allocate(bytes); no queued work may use it any more.
  void release(void* data, int64_t bytes) noexcept;

  struct Use {
    int64_t in_use = 0, peak = 0, kept = 0;
  };
  Use use() const;

 private:
  void* take_kept(int64_t bytes);
  void free_kept() noexcept;
  [[noreturn]] void raise_out_of_memory(int64_t bytes) const;

  int device_;
  std::string device_name_;
  mutable std::mutex mutex_;
  std::multimap<int64_t, void*> kept_;
  std::map<void*, int64_t> taken_;  // with their real size
  Use use_;
};

// "1.50 GiB", "300 MiB", "12 bytes"
std::string bytes_text(int64_t bytes);

}  // namespace rondo::cuda
