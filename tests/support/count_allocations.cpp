#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

extern "C" const char __executable_start, etext;

namespace rondo::test {

namespace {

thread_local int64_t of_this_thread = 0;
std::atomic<int64_t> of_all_threads = 0;
std::atomic<int64_t> of_own_code = 0;

}  // namespace

int64_t allocations_of_this_thread() {
  return of_this_thread;
}

int64_t allocations_of_all_threads() {
  return of_all_threads.load();
}

int64_t allocations_of_own_code() {
  return of_own_code.load();
}

static void* counted(std::size_t size, std::size_t alignment, const void* caller) {
  ++of_this_thread;
  ++of_all_threads;
  const auto* address = static_cast<const char*>(caller);
  if (address >= &__executable_start && address < &etext) ++of_own_code;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace rondo::test

void* operator new(std::size_t size) {
  return rondo::test::counted(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__, __builtin_return_address(0));
}
void* operator new[](std::size_t size) {
  return rondo::test::counted(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__, __builtin_return_address(0));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return rondo::test::counted(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return rondo::test::counted(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
// Without these a sanitizer's own would serve, whose memory is not for free().
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return rondo::test::counted(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__, __builtin_return_address(0));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
