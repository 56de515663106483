#include <fmt/core.h>

#include <array>
#include <iterator>
#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo {
namespace {

struct InstructionSet {
  dnnl::cpu_isa isa;
  const char* name;
};

// From lowest to highest: each contains the one before (avx2_vnni and the Xeon Phi sets, which stand outside
// this chain, count as AVX2 and AVX-512 foundation).
constexpr std::array kInstructionSets{
    InstructionSet{dnnl::cpu_isa::sse41, "SSE4.1"},
    InstructionSet{dnnl::cpu_isa::avx, "AVX"},
    InstructionSet{dnnl::cpu_isa::avx2, "AVX2"},
    InstructionSet{dnnl::cpu_isa::avx512_core, "AVX-512"},
    InstructionSet{dnnl::cpu_isa::avx512_core_vnni, "AVX-512 VNNI"},
    InstructionSet{dnnl::cpu_isa::avx512_core_bf16, "AVX-512 BF16"},
    InstructionSet{dnnl::cpu_isa::avx512_core_amx, "AVX-512 AMX"},
};

}  // namespace

std::string onednn_version() {
  const auto* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

int cpu_instruction_set() {
  // Each set's bits contain the bits of those below it.
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  int level = -1;
  for (size_t i = 0; i < kInstructionSets.size(); ++i) {
    const auto bits = static_cast<unsigned>(kInstructionSets[i].isa);
    if ((effective & bits) == bits) level = static_cast<int>(i);
  }
  return level;
}

std::string cpu_instruction_set_name(int level) {
  if (level < 0 || level >= static_cast<int>(kInstructionSets.size())) return "generic";
  return kInstructionSets[static_cast<size_t>(level)].name;
}

void limit_cpu_instruction_set(int level) {
  if (level < 0 || level >= cpu_instruction_set()) return;  // nothing to lower
  const auto status = dnnl::set_max_cpu_isa(kInstructionSets[static_cast<size_t>(level)].isa);
  if (status != dnnl::status::success) {
    raise<InternalError>("oneDNN's instruction set was to be limited to {} after its first use",
                         cpu_instruction_set_name(level));
  }
}

}  // namespace rondo
