#include "runtime/comm/mpi/mpi_check.h"

#include <array>
#include <string>

#include "runtime/base/error.h"

namespace rondo {

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  const std::string_view reason(text.data(), static_cast<size_t>(length));
  raise<PeerError>("{} failed: {}", what, length > 0 ? reason : std::string_view("unknown MPI error"));
}

}  // namespace rondo
