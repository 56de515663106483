#pragma once

#include <memory>
#include <string>

#include "runtime/kernels/backend.h"

namespace rondo {

// Kernels for hosts over oneDNN. The device must outlive the backend.
std::unique_ptr<KernelBackend> make_cpu_backend(Device& device);

// oneDNN's version, and the instruction set it would use on this machine as a rank in oneDNN's order: ranks
// agree on the lowest before they make any kernel, so that all of them choose the same parameter layouts.
std::string onednn_version();
int cpu_instruction_set();
std::string cpu_instruction_set_name(int level);
// Must come before the first kernel is made; throws InternalError afterwards. Levels as
// cpu_instruction_set().
void limit_cpu_instruction_set(int level);

}  // namespace rondo
