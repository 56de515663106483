#include "runtime/comm/mpi/launcher.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace rondo {
namespace {

using Environment = std::function<const char*(const char*)>;

std::optional<int64_t> number(const Environment& environment, const char* name) {
  const char* text = environment(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size()) return std::nullopt;
  return value;
}

// srun's steps count from 0; the batch script, the external and the interactive step have numbers at the
// upper end.
bool in_slurm_step(const Environment& environment) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  const auto step = number(environment, "SLURM_STEP_ID");
  return step && *step >= 0 && *step < kFirstSpecialStep && number(environment, "SLURM_PROCID");
}

}  // namespace

Launch launched_by(const Environment& environment) {
  const auto get = [&](const char* name) { return static_cast<int>(number(environment, name).value_or(0)); };
  const bool slurm = in_slurm_step(environment);
  Launch launch;
  if (number(environment, "OMPI_COMM_WORLD_SIZE")) {
    launch = {"Open MPI", get("OMPI_COMM_WORLD_RANK"), get("OMPI_COMM_WORLD_SIZE"),
              get("OMPI_COMM_WORLD_LOCAL_SIZE")};
  } else if (number(environment, "PMIX_RANK")) {
    launch = {"PMIx", get("PMIX_RANK"), slurm ? get("SLURM_NTASKS") : 0, 0};
  } else if (number(environment, "PMI_RANK") && number(environment, "PMI_SIZE")) {
    launch = {"PMI", get("PMI_RANK"), get("PMI_SIZE"), get("MPI_LOCALNRANKS")};
  } else if (slurm && get("SLURM_NTASKS") > 1) {
    launch = {"Slurm", get("SLURM_PROCID"), get("SLURM_NTASKS"), 0};
  }
  if (launch && slurm && launch.local_size == 0 && get("SLURM_NNODES") == 1) launch.local_size = launch.size;
  return launch;
}

Launch launched_by() {
  return launched_by([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace rondo
