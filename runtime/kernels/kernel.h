// Kernel: one operation, prepared once for fixed shapes and layouts, executed every step.
//
// A kernel is made by a KernelBackend when a model is compiled; making it may be slow and may allocate.
// Executing it does neither (apart from what a library does inside). Each kernel states the descriptors it
// reads and writes; the compiler inserts a reorder where a producer's layout differs from what a consumer
// prefers.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/device/device.h"
#include "runtime/tensor/step_state.h"
#include "runtime/tensor/tensor.h"

namespace rondo {

enum class Mode : uint8_t { kTraining, kInference };

// What a kernel needs besides its operands. Operands, scratch and state are memory of the kernel's device,
// which the kernel reads and writes when the stream gets there; only the structs that describe them are read
// during the call.
struct Execution {
  Stream& stream;
  void* scratch = nullptr;           // at least the largest scratch_bytes() of the plan's kernels
  const StepState* state = nullptr;  // in training; kernels that depend on the step read it
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }  // working memory that need not survive an execution
  virtual std::string implementation() const = 0;      // for reports: "oneDNN jit:avx2", "loop"
};

}  // namespace rondo
