#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo {
namespace {

struct InstructionSet {
  dnnl::cpu_isa isa;
  const char* name;
  const char* variable;  // as the environment variable that limits oneDNN spells it
};

// From lowest to highest: each contains the one before. oneDNN's sets that stand outside this chain (AVX2
// with VNNI, Xeon Phi) count as the highest they contain; what lies above the last does not touch float32.
constexpr std::array kInstructionSets{
    InstructionSet{dnnl::cpu_isa::sse41, "SSE4.1", "SSE41"},
    InstructionSet{dnnl::cpu_isa::avx, "AVX", "AVX"},
    InstructionSet{dnnl::cpu_isa::avx2, "AVX2", "AVX2"},
    InstructionSet{dnnl::cpu_isa::avx512_core, "AVX-512", "AVX512_CORE"},
    InstructionSet{dnnl::cpu_isa::avx512_core_vnni, "AVX-512 VNNI", "AVX512_CORE_VNNI"},
    InstructionSet{dnnl::cpu_isa::avx512_core_bf16, "AVX-512 BF16", "AVX512_CORE_BF16"},
};

int hardware_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.1")) return -1;
  if (!__builtin_cpu_supports("avx")) return 0;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return 2;
  }
  if (!__builtin_cpu_supports("avx512vnni")) return 3;
  return __builtin_cpu_supports("avx512bf16") ? 5 : 4;
#else
  return -1;
#endif
}

// The level that the user's environment allows; oneDNN honours it by itself.
int environment_level() {
  for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr) continue;
    for (size_t i = 0; i < kInstructionSets.size(); ++i) {
      if (std::string_view(value) == kInstructionSets[i].variable) return static_cast<int>(i);
    }
    if (std::string_view(value).starts_with("AVX2") || std::string_view(value).starts_with("AVX512_MIC")) {
      return 2;
    }
    break;
  }
  return static_cast<int>(kInstructionSets.size()) - 1;
}

}  // namespace

std::string onednn_version() {
  const auto* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

// Not asked of oneDNN: its answer is final, and the ranks' common limit could not be set any more.
int cpu_instruction_set() {
  return std::min(hardware_level(), environment_level());
}

std::string cpu_instruction_set_name(int level) {
  if (level < 0 || level >= static_cast<int>(kInstructionSets.size())) return "generic";
  return kInstructionSets[static_cast<size_t>(level)].name;
}

void limit_cpu_instruction_set(int level) {
  if (level < 0 || level >= cpu_instruction_set()) return;  // nothing to lower
  const auto isa = kInstructionSets[static_cast<size_t>(level)].isa;
  if (dnnl::set_max_cpu_isa(isa) == dnnl::status::success) return;
  if (dnnl::get_effective_cpu_isa() == isa) return;  // it was limited so before
  raise<InternalError>("oneDNN's instruction set was to be limited to {} after its first use",
                       cpu_instruction_set_name(level));
}

int effective_cpu_instruction_set() {
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  int level = -1;
  for (size_t i = 0; i < kInstructionSets.size(); ++i) {
    const auto bits = static_cast<unsigned>(kInstructionSets[i].isa);
    if ((effective & bits) == bits) level = static_cast<int>(i);
  }
  return level;
}

}  // namespace rondo
