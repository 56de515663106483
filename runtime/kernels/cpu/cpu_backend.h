#pragma once

#include <memory>
#include <string>

#include "runtime/kernels/backend.h"

namespace rondo {

// Kernels for hosts over oneDNN. The device must outlive the backend.
std::unique_ptr<KernelBackend> make_cpu_backend(Device& device);

// oneDNN's version.
std::string onednn_version();
// The highest instruction set that this machine (and the user's ONEDNN_MAX_CPU_ISA) offers, as a rank in
// oneDNN's order: ranks agree on the lowest before they make any kernel, so that all of them choose the same
// parameter layouts. -1 where there is no such order (not x86-64).
int cpu_instruction_set();
std::string cpu_instruction_set_name(int level);
// Lowers what oneDNN uses; a level that is not below cpu_instruction_set() changes nothing. Must come before
// the first backend is made; throws InternalError afterwards, unless the limit is already in force.
void limit_cpu_instruction_set(int level);
// What oneDNN uses. Asking ends the time for limits.
int effective_cpu_instruction_set();

}  // namespace rondo
