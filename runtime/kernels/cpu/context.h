#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/device/device.h"

namespace rondo::cpu {

// What the kernels of one backend share: they keep it alive.
struct Context {
  explicit Context(Device& on)
      : device(on), threads(on.threads()), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

  // OpenMP keeps the number of threads per calling thread, and oneDNN reads it both when a primitive is made
  // (blocking depends on it) and when it runs.
  void use_threads() const;

  Device& device;
  int threads;
  dnnl::engine engine;
  dnnl::stream stream;
};

}  // namespace rondo::cpu
