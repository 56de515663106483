#include "runtime/launch/version.h"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/comm/mpi/session.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/gpu_loader.h"

namespace rondo {
namespace {

// Called for each object of the process, the program first; stops after that one.
int read_build_id(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const auto padded = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
      const char* name = at + sizeof(note);
      const char* id = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        auto& text = *static_cast<std::string*>(out);
        for (size_t b = 0; b < note.n_descsz; ++b) text += fmt::format("{:02x}", static_cast<uint8_t>(id[b]));
        return 1;
      }
      at = id + padded(note.n_descsz);
    }
  }
  return 1;
}

}  // namespace

std::string version() {
  return RONDO_VERSION;
}

std::string build_id() {
  std::string id;
  dl_iterate_phdr(read_build_id, &id);
  if (!id.empty()) return id;
  std::error_code error;
  const auto size = std::filesystem::file_size("/proc/self/exe", error);
  return error ? "unknown" : fmt::format("{} bytes", size);
}

std::string parts_of_this_build() {
  return fmt::format(
      "MPI     {}\n"
      "oneDNN  {} (this machine: {})\n"
      "{}",
      MpiSession::library(), onednn_version(), cpu_instruction_set_name(cpu_instruction_set()),
      gpu_parts_of_this_build());
}

std::string libraries_of_this_build() {
  return fmt::format("{}, oneDNN {}, {}", MpiSession::library(), onednn_version(),
                     gpu_libraries_of_this_build());
}

}  // namespace rondo
