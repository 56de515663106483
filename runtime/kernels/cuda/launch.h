// How the kernels of this folder are launched: the only place that knows whether nvcc or a host compiler
// reads them.
//
// A kernel is a functor with a RONDO_DEVICE operator(). Every launch lists the spans that it touches:
//
//   launch_elements("add", stream, count, {reads(a, bytes), reads(b, bytes), writes(out, bytes)}, Add{a, b,
//   out});
//
// nvcc drops the list. Compiled as host C++ (against a test double of the CUDA runtime) the functor runs in a
// loop on a simulated stream, and the double checks that every access of the list is ordered.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#ifdef __CUDACC__
#define RONDO_DEVICE __device__
#else
#define RONDO_DEVICE
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "runtime/kernels/cuda/host_launch.h"
#endif

namespace rondo::cuda {

// Memory that a launch touches; what is read and written is listed twice.
struct Access {
  const void* data = nullptr;
  size_t bytes = 0;
  bool writes = false;
};
inline Access reads(const void* data, int64_t bytes) {
  return {data, static_cast<size_t>(bytes), false};
}
inline Access writes(const void* data, int64_t bytes) {
  return {data, static_cast<size_t>(bytes), true};
}
using Accesses = std::initializer_list<Access>;

// Throws DeviceError, naming the kernel, when the last launch was refused.
void check_launch(const char* name);

// The threads that share one task of launch_teams. On hosts a team has one member.
class Team {
 public:
#ifdef __CUDACC__
  RONDO_DEVICE int rank() const {
    return static_cast<int>(threadIdx.x);
  }
  RONDO_DEVICE int size() const {
    return static_cast<int>(blockDim.x);
  }
  // Of all members' values, in an order that the team's size alone decides; every member gets the result. All
  // members must call.
  RONDO_DEVICE double sum(double value) const {
    return reduce(value, [](double a, double b) { return a + b; });
  }
  RONDO_DEVICE float max(float value) const {
    return reduce(value, [](float a, float b) { return b > a || b != b ? b : a; });  // a NaN wins
  }
  RONDO_DEVICE int64_t min(int64_t value) const {
    return reduce(static_cast<long long>(value), [](long long a, long long b) { return b < a ? b : a; });
  }
  RONDO_DEVICE void synchronize() const {
    __syncthreads();
  }

 private:
  // Pairs within each warp, then the warps in order.
  template <class T, class Join>
  RONDO_DEVICE static T reduce(T value, Join join) {
    for (int offset = 16; offset > 0; offset /= 2) {
      value = join(value, __shfl_down_sync(0xffffffffu, value, offset));
    }
    const unsigned warps = blockDim.x / 32;
    if (warps == 1) return __shfl_sync(0xffffffffu, value, 0);
    __shared__ T parts[32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (unsigned w = 1; w < warps; ++w) value = join(value, parts[w]);
    __syncthreads();  // the next reduction writes `parts`
    return value;
  }
#else
  int rank() const {
    return 0;
  }
  int size() const {
    return 1;
  }
  double sum(double value) const {
    return value;
  }
  float max(float value) const {
    return value;
  }
  int64_t min(int64_t value) const {
    return value;
  }
  void synchronize() const {}
#endif
};

namespace detail {

// A functor may have prepare(), whose result is computed once for each thread and passed behind the index.
template <class F>
RONDO_DEVICE void run_range(const F& f, int64_t begin, int64_t end, int64_t step) {
  if constexpr (requires { f.prepare(); }) {
    const auto prepared = f.prepare();
    for (int64_t i = begin; i < end; i += step) f(i, prepared);
  } else {
    for (int64_t i = begin; i < end; i += step) f(i);
  }
}

#ifdef __CUDACC__
constexpr int64_t kBlock = 256;
constexpr int64_t kMostBlocks = 2112;  // two waves of full multiprocessors on 132 of them

template <class F>
__global__ void __launch_bounds__(kBlock) run_elements(int64_t count, F f) {
  run_range(f, static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x, count,
            static_cast<int64_t>(gridDim.x) * kBlock);
}
template <class F>
__global__ void run_teams(int64_t count, F f) {
  for (int64_t task = blockIdx.x; task < count; task += gridDim.x) f(task, Team());
}
#else
inline void launch_on_host(const char* name, cudaStream_t stream, Accesses accesses,
                           std::function<void()> body) {
  std::array<DeviceSpan, 32> spans;
  size_t read = 0, written = 0;
  for (const Access& access : accesses) {
    if (!access.writes) spans.at(read++) = {access.data, access.bytes};
  }
  for (const Access& access : accesses) {
    if (access.writes) spans.at(read + written++) = {access.data, access.bytes};
  }
  rondo_host_launch(stream, std::span(spans).first(read), std::span(spans).subspan(read, written),
                    std::move(body), name);
}
#endif

}  // namespace detail

// f(i) for 0 <= i < count, in no order. `name` is a literal.
template <class F>
void launch_elements(const char* name, cudaStream_t stream, int64_t count, [[maybe_unused]] Accesses accesses,
                     const F& f) {
  if (count <= 0) return;
#ifdef __CUDACC__
  const int64_t needed = (count + detail::kBlock - 1) / detail::kBlock;
  const auto blocks = static_cast<unsigned>(needed < detail::kMostBlocks ? needed : detail::kMostBlocks);
  detail::run_elements<<<blocks, static_cast<unsigned>(detail::kBlock), 0, stream>>>(count, f);
#else
  detail::launch_on_host(name, stream, accesses, [count, f] { detail::run_range(f, 0, count, 1); });
#endif
  check_launch(name);
}

// f(task, team) for 0 <= task < count, each by a team of `threads` (a multiple of 32, at most 1024) that
// divides the work of a task by rank() and size().
template <class F>
void launch_teams(const char* name, cudaStream_t stream, int64_t count, [[maybe_unused]] int threads,
                  [[maybe_unused]] Accesses accesses, const F& f) {
  if (count <= 0) return;
#ifdef __CUDACC__
  const auto blocks = static_cast<unsigned>(count < 1 << 20 ? count : 1 << 20);
  detail::run_teams<<<blocks, static_cast<unsigned>(threads), 0, stream>>>(count, f);
#else
  detail::launch_on_host(name, stream, accesses, [count, f] {
    for (int64_t task = 0; task < count; ++task) f(task, Team());
  });
#endif
  check_launch(name);
}

// The size of a team for tasks of `length` steps: whole warps, enough for one step each, at most `most`.
inline int team_for(int64_t length, int most = 256) {
  int threads = 32;
  while (threads < most && threads < length) threads *= 2;
  return threads;
}

}  // namespace rondo::cuda
